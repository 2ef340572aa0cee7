#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Weights under torchvision's and transformers' keys load in peal and give the same outputs, and GPT-2's go back.
# Argument 1: the program of torch_weights.cpp. Skips (77) where there is no PyTorch, or no torchvision.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:?usage: torch_weights_test.sh PROGRAM}
. "$here/../torch.sh"

"$python" "$here/torch_weights.py" make "$folder"
"$program" "$folder"
"$python" "$here/torch_weights.py" check "$folder"
