#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with an NVIDIA GPU: builds peal with its CUDA parts, runs the tests that need a GPU, measures training
# steps beside the PyTorch that is there, and prints one table. One command; what a stage printed is in OUT.
#
#   tests/gpu/run.sh [OUT]          OUT: a folder for logs and the table (default: build/gpu)
#
# PEAL_GPU_STAGES chooses among: build test sanitizer ranks train bench (default: all). It goes on after a stage that
# fails, and ends with what failed. NCCL and cuDNN may lie in PyTorch's own packages (nvidia/ in site-packages).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=$(mkdir -p "${1:-build/gpu}" && cd "${1:-build/gpu}" && pwd)
stages=${PEAL_GPU_STAGES:-build test sanitizer ranks train bench}
build=build/cuda
python=$(command -v python3 || echo python3)
failed=()

command -v nvidia-smi >/dev/null || { echo "tests/gpu/run.sh: no nvidia-smi: this machine has no NVIDIA GPU" >&2; exit 1; }
export PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "tests/gpu/run.sh: no nvcc on PATH or in /usr/local/cuda/bin" >&2; exit 1; }

# stage NAME COMMAND... : runs it where it is wanted; its output goes to the screen and to OUT/NAME.log.
stage() {
  local name=$1 start=$SECONDS
  shift
  [[ " $stages " == *" ${name%%-*} "* ]] || return 0
  printf '\n===== %s: %s\n' "$name" "$*"
  if "$@" 2>&1 | tee "$out/$name.log"; then
    printf '===== %s passed, %d s\n' "$name" $((SECONDS - start))
  else
    printf '===== %s FAILED, %d s\n' "$name" $((SECONDS - start))
    failed+=("$name")
  fi
}

# Where PyTorch's packages keep NCCL and cuDNN, for machines that have them nowhere else.
site=$("$python" -c 'import nvidia, os; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
prefixes=$site/nccl\;$site/cudnn
if [[ -n $site ]]; then
  for library in nccl cudnn cublas; do
    [[ -d $site/$library/lib ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$site/$library/lib
  done
fi

build() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  # Another compiler's new warning must not cost the machine's time.
  cmake --preset cuda -DCMAKE_PREFIX_PATH="$prefixes" -DCMAKE_CUDA_ARCHITECTURES=native -DPEAL_WERROR=OFF \
    --log-level=WARNING &&
    cmake --build --preset cuda -j "$(nproc)"
}

# A test that is skipped found no device: that is a failure here.
run_tests() {
  local log
  log=$(ctest --test-dir "$build" -L gpu --output-on-failure -j 4 2>&1) && ! grep -q Skipped <<<"$log"
  local status=$?
  printf '%s\n' "$log"
  return $status
}

# Programs again under compute-sanitizer, which slows kernels down by an order of magnitude.
sanitize() {
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here"; return 1; }
  local program status=0
  for program in device_layer table models; do
    timeout 500 compute-sanitizer --error-exitcode 9 --report-api-errors no "$build/tests/gpu/gpu_$program" || status=1
  done
  return $status
}

# One to three ranks on one GPU: over CUDA IPC, through MPI, and over NCCL where every process says that it is a host of
# its own. Then what goes wrong: the last line of each is what rank 0 was told.
ranks() {
  local n what log status=0
  for n in 1 2 3; do
    timeout 300 launch/tools/peal-mpirun -n "$n" "$build/tests/gpu/gpu_ranks" || status=1
    PEAL_CUDA_TRANSPORT=mpi timeout 300 launch/tools/peal-mpirun -n "$n" "$build/tests/gpu/gpu_ranks" || status=1
    timeout 300 launch/tools/peal-mpirun -n "$n" "$build/tests/gpu/gpu_ipc" || status=1
    # shellcheck disable=SC2016 # each rank's own shell expands it
    timeout 300 launch/tools/peal-mpirun -n "$n" bash -c \
      'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo exec "$0"' "$build/tests/gpu/gpu_ranks" || status=1
  done
  for what in fails "does not come" "calls something else" "reduces otherwise"; do  # the ranks leave without MPI_Finalize: no exit code
    log="$out/ranks-${what// /-}.log"
    # By mail what differs is not seen before it is reduced.
    PEAL_ALGO=$([[ $what == reduces* ]] && echo all_reduce=ring) \
      PEAL_TIMEOUT=8 timeout 60 launch/tools/peal-mpirun -n 2 "$build/tests/gpu/gpu_ipc_failure" \
      --test-case="a rank that $what" >"$log" 2>&1
    cat "$log"
    grep -q "all was well" "$log" || status=1
  done
  return $status
}

# Ranks that share a GPU take turns on it; under MPS they run beside each other, which CUDA IPC wants.
bandwidth() {
  timeout 300 launch/tools/peal-mpirun -n 2 "$build/bench/perf/all_reduce_perf" --device cuda -b 1K -e 64M -f 4 -R 2
}

train() {
  local data=${PEAL_MNIST:-synthetic}
  timeout 300 "$build/examples/05_train_mnist" --data "$data" --device cpu --seed 0 &&
    timeout 300 "$build/examples/05_train_mnist" --data "$data" --device cuda --seed 0 &&
    timeout 300 launch/tools/peal-mpirun -n 2 "$build/examples/05_train_mnist" --data "$data" --device cuda --seed 0
}

stage build build
stage test run_tests
stage ranks ranks
stage sanitizer sanitize
stage train train
stage bench-bandwidth bandwidth
stage bench "$python" bench/peers/ratios.py "$build" --device cuda --python "$python" --json "$out/ratios.json"

if ((${#failed[@]})); then
  printf '\ntests/gpu/run.sh: FAILED: %s (logs in %s)\n' "${failed[*]}" "$out"
  exit 1
fi
printf '\ntests/gpu/run.sh: passed\n'
