#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint of peal's loads in PyTorch by its keys and gives the same outputs and gradients, and a model of
# PyTorch's loads in peal. Argument 1: the program of torch_exchange.cpp. Skips (77) where there is no PyTorch.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:?usage: torch_exchange_test.sh PROGRAM}
. "$here/../torch.sh"

"$program" write "$folder"
"$python" "$here/torch_exchange.py" "$folder"
"$program" check "$folder"
