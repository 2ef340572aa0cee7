#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ResNet-18 and GPT by their keys, clipping and learning rates, against PyTorch. Argument 1: the program of
# torch_models.cpp. Skips (77) where there is no PyTorch.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:?usage: torch_models_test.sh PROGRAM}
for python in /usr/bin/python3 python3 ''; do
  [[ -z $python ]] || ! "$python" -c 'import torch' 2>/dev/null || break
done
if [[ -z $python ]]; then
  echo 'SKIPPED: no python3 here imports torch; install python3-torch to run this test'
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$program" "$folder"
PYTHONDONTWRITEBYTECODE=1 "$python" "$here/torch_models.py" "$folder"
