#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a program of peal's wrote into a folder, against PyTorch. Argument 1: the program; 2: PyTorch's side of it. Both
# take the folder. Skips (77) where there is no PyTorch.
set -euo pipefail

program=${1:?usage: torch_test.sh PROGRAM SCRIPT}
script=${2:?usage: torch_test.sh PROGRAM SCRIPT}
. "$(dirname "${BASH_SOURCE[0]}")/torch.sh"

"$program" "$folder"
"$python" "$script" "$folder"
