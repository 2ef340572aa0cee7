#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows without a GPU that what pack.sh packed starts on a bare machine: in ROOT, a fresh Ubuntu 24.04 or another system
# with as new a C library as the building one's, without a network, every program finds all its libraries, and says that
# there is no driver. As root:
#
#   debootstrap --variant=minbase noble ROOT http://archive.ubuntu.com/ubuntu
#   tests/gpu/dry_run.sh FOLDER ROOT [LIBRARIES]
#
# FOLDER: what pack.sh filled; LIBRARIES: a folder with CUDA's, cuDNN's and NCCL's libraries, which a machine with a GPU has
# (default: /usr/local/cuda/lib64). What is laid out in ROOT stays there.
set -euo pipefail
if [[ ${1-} != --inside ]]; then  # mounts, network and processes of its own, gone at the end
  exec unshare --mount --net --pid --fork --kill-child "$0" --inside "$@"
fi
usage='usage: dry_run.sh FOLDER ROOT [LIBRARIES]'
packed=$(cd "${2:?$usage}" && pwd) root=$(cd "${3:?$usage}" && pwd) libraries=${4:-/usr/local/cuda/lib64}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
most=$((60 << 20))

ip link set lo up
mkdir -p "$root"/{proc,sys,dev,opt/cuda}
mount -t proc proc "$root/proc"
mount --bind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$libraries" "$root/opt/cuda"

here=/opt/peal
rm -rf "${root:?}$here"
mkdir -p "$root$here"
cp "$packed"/{programs,system}.tar.xz launch/tools/peal-mpirun "$root$here"
bytes=$(cat "$root$here"/*.tar.xz | wc -c)
tests/gpu/unpack.sh "$root$here" "$root" /opt/cuda

in_root() { timeout 120 chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C OMP_NUM_THREADS=1 "$@"; }

failed=0
printf '%s, %s\n' "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release")" "$(in_root ldd --version | head -1)"
printf 'programs and system: %d bytes, of %d at most\n' "$bytes" "$most"
((bytes <= most)) || failed=1
for program in "$root$here"/programs/bin/*; do
  name=${program##*/}
  command=("$here/programs/bin/$name")
  case $name in
    gpu_ranks | gpu_ipc | gpu_ipc_failure) command=("$here/peal-mpirun" -n 2 "${command[@]}") ;;
    all_reduce_perf) command=("$here/peal-mpirun" -n 2 "${command[@]}" --device cuda) ;;
    step_time) command+=(--device cuda) ;;
    [0-9]*) command+=(--data synthetic --device cuda) ;;
  esac
  status=0
  says=$(in_root "${command[@]}" </dev/null 2>&1) || status=$?
  said=$(grep -m 1 -iE 'no (CUDA device|driver)' <<<"$says" || true)
  lost=$(in_root ldd "$here/programs/bin/$name" | grep 'not found' || true)
  wrong=$(grep -m 1 -iE 'loading shared libraries|lookup error|cannot open|not found|dumped|signal [0-9]' <<<"$says" || true)
  if [[ $status -ne 0 && $status -ne 124 && -n $said && -z $lost && -z $wrong ]]; then
    printf '%-20s %s\n' "$name" "$said"
  else
    failed=1
    printf '%-20s FAILED with %d\n%s\n%s\n' "$name" "$status" "$lost" "$says"
  fi
done
exit $failed
