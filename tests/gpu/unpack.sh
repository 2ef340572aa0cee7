#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lays out what pack.sh packed: the programs beside it, and system.tar.xz under a root, where every file and every link to
# a folder that is there stays. For a machine of one use.
#
#   tests/gpu/unpack.sh FOLDER ROOT [LIBRARIES...]
#
# FOLDER: what pack.sh filled, in the ROOT that programs will see (/: this machine's); LIBRARIES: folders there with CUDA's,
# cuDNN's and NCCL's libraries, the first that has one counts. They become links in FOLDER/programs/lib, where programs look:
# cuDNN finds its parts beside itself.
set -euo pipefail
folder=${1:?usage: unpack.sh FOLDER ROOT [LIBRARIES...]} root=${2:?usage: unpack.sh FOLDER ROOT [LIBRARIES...]}
shift 2
root=${root%/}
programs=$folder/programs
mkdir -p "$programs/lib"
tar xJf "$folder/programs.tar.xz" -C "$programs"
tar xJf "$folder/system.tar.xz" -C "$root/" --skip-old-files --keep-directory-symlink
ldconfig -r "$root/"
for libraries in "$@"; do
  for library in "$root$libraries"/lib{cudart,cublas,cublasLt,cudnn,cudnn_*,nccl,nvrtc,nvrtc-builtins}.so*; do
    [[ -e $library ]] || continue
    [[ -L $programs/lib/${library##*/} ]] || ln -s "${library#"$root"}" "$programs/lib/"
  done
done
ln -sfn bin "$programs/bench"
