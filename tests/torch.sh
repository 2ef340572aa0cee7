# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests against PyTorch: sets `python` to one that imports torch and `folder` to an empty one that goes at
# the end. Ends the test as skipped (77) where there is no PyTorch. PEAL_TEST_PYTHON goes before all others.
for python in ${PEAL_TEST_PYTHON:+"$PEAL_TEST_PYTHON"} /usr/bin/python3 python3 ''; do
  [[ -z $python ]] || ! "$python" -c 'import torch' 2>/dev/null || break
done
if [[ -z $python ]]; then
  echo 'SKIPPED: no python3 here imports torch; install python3-torch to run this test'
  exit 77
fi
export PYTHONDONTWRITEBYTECODE=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
