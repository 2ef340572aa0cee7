#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a clone to two ranks that train on real images: installs what is missing (Debian 12; root or sudo),
# builds release into build/release, and trains the MNIST network on Fashion-MNIST, one epoch on two ranks.
# Runs from any folder, and again: what is done stays done. Takes no options.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ $# -gt 0 ]]; then
  sed -n '3,5s/^# //p' "${BASH_SOURCE[0]}"
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi

step() { printf '\n[quickstart, %d s] %s\n' "$SECONDS" "$*"; }

step "1/4 install what is missing: launch/install_dependencies.sh"
"$root/launch/install_dependencies.sh"

cd "$root"
# All sources have to be compiled: eight as one, then. What is built already stays as it is.
fresh=()
[[ -e build/release/CMakeCache.txt ]] || fresh=(-DPEAL_UNITY=ON)
step "2/4 configure: cmake --preset release ${fresh[*]}"
cmake --preset release "${fresh[@]}" --log-level=WARNING

step "3/4 build: cmake --build --preset release --target 05_train_mnist peal-run"
# nproc would believe OMP_NUM_THREADS, which is for the training.
cmake --build --preset release --target 05_train_mnist peal-run -j "$(env -u OMP_NUM_THREADS nproc)"

train=(launch/tools/peal-mpirun -n 2 build/release/examples/05_train_mnist
  --data fashion --num_train_epochs 1 --per_device_train_batch_size 32 --learning_rate 1e-3)
step "4/4 train: ${train[*]}"
"${train[@]}"

step "done. Train again, with options of your own: cd '$root' && ${train[0]} -n 2 ${train[3]} --help"
