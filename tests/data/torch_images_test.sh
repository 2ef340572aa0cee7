#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What PIL and torchvision make of images, against peal. Argument 1: the program of torch_images.cpp. Skips (77) where
# there is no PyTorch, or no torchvision.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:?usage: torch_images_test.sh PROGRAM}
. "$here/../torch.sh"

"$python" "$here/torch_images.py" "$folder"
"$program" "$folder"
