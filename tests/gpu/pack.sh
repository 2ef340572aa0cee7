#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs programs for a machine that has an NVIDIA GPU and PyTorch's packages, but neither compilers nor a registry: what
# tests/gpu/run.sh --packed runs there, in 60 MiB. Build them before, for that GPU alone:
#
#   cmake --preset cuda -B build/gpu -DPEAL_UNITY=ON -DCMAKE_CUDA_ARCHITECTURES=90-real -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
#     '-DCMAKE_INSTALL_RPATH=$ORIGIN/../lib'
#   cmake --build build/gpu --target peal_gpu_tests step_time all_reduce_perf 05_train_mnist
#   tests/gpu/pack.sh build/gpu FOLDER
#
# FOLDER gets programs.tar.xz, stripped, and system.tar.xz: Open MPI and the libraries of all that (the closure of what
# they load), at their own paths, but those of the C library and of CUDA, which that machine has.
set -euo pipefail
build=$(cd "${1:?usage: pack.sh BUILD FOLDER}" && pwd)
folder=$(mkdir -p "${2:?usage: pack.sh BUILD FOLDER}" && cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries=/usr/lib/x86_64-linux-gnu

mkdir -p "$work/programs/bin" "$work/system/usr/bin"
for program in "$build"/tests/gpu/gpu_* "$build/bench/step_time" "$build/bench/perf/all_reduce_perf" \
  "$build/examples/05_train_mnist"; do
  [[ -f $program && -x $program ]] || continue
  strip -o "$work/programs/bin/$(basename "$program")" "$program"
done
git -C "$build" describe --always --dirty >"$work/programs/commit" 2>/dev/null || true

# Open MPI finds its plugins and texts at the paths that it was built with.
cp -L /usr/bin/orterun /usr/bin/orted "$work/system/usr/bin"
ln -s orterun "$work/system/usr/bin/mpirun"
(cd / && cp -rL --parents usr/share/openmpi etc/openmpi "${libraries#/}/openmpi/lib/openmpi3" "$work/system")
pmix=${libraries#/}/pmix2
(cd / && cp -rL --parents "$pmix/lib" "$pmix/share" "$work/system" 2>/dev/null) || true
find "$work/system" \( -name '*.a' -o -name '*.la' \) -delete

# Files that ldd finds for $@, but those of the C library and of CUDA.
closure() {
  for file in "$@"; do LD_LIBRARY_PATH=/usr/local/cuda/lib64 ldd "$file" 2>/dev/null || true; done |
    sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -vE '/(lib(c|m|dl|rt|pthread|resolv|util|nsl)\.so|lib(cudart|cublas|cublasLt|cudnn|nccl|nvrtc|cuda|nvidia))' || true
}
mapfile -t loaded < <(find "$work/programs/bin" "$work/system" -type f \( -perm -u+x -o -name '*.so*' \))
mkdir -p "$work/system$libraries"
closure "${loaded[@]}" | while IFS= read -r file; do
  to=$work/system$libraries/$(basename "$file")
  [[ -e $to ]] || { cp -L "$file" "$to" && strip --strip-unneeded "$to" 2>/dev/null || true; }
done

# Programs have their kernels in common, farther apart than a usual dictionary reaches.
pack() { tar c -C "$work/$1" . | xz --lzma2=preset=3,nice=64,dict=512MiB >"$folder/$1.tar.xz"; }
pack programs
pack system
du -sh "$folder"/*.xz
