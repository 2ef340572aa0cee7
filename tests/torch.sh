# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests against PyTorch: sets `python` to one that has torch and `folder` to an empty one that goes at
# the end. Ends the test as skipped (77) where there is no PyTorch. PEAL_TEST_PYTHON goes before all others.
# Importing it only to see whether it is there takes seconds, in each test; one that is there and does not import is a
# failure of the test, not a reason to skip it.
has_torch='import importlib.util, sys; found = importlib.util.find_spec("torch"); sys.exit(found is None or found.origin is None)'
for python in ${PEAL_TEST_PYTHON:+"$PEAL_TEST_PYTHON"} /usr/bin/python3 python3 ''; do
  [[ -z $python ]] || ! "$python" -c "$has_torch" 2>/dev/null || break
done
if [[ -z $python ]]; then
  echo 'SKIPPED: no python3 here has torch; install python3-torch to run this test'
  exit 77
fi
export PYTHONDONTWRITEBYTECODE=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
