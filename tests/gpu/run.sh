#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with an NVIDIA GPU: runs the tests that need one, measures training steps beside the PyTorch that is
# there, and prints one table. One command; what a stage printed comes as it is printed, and is in OUT.
#
#   tests/gpu/run.sh [OUT]                    builds first (CMake, nvcc); OUT: a folder, default build/gpu-run
#   tests/gpu/run.sh --packed FOLDER [OUT]    runs the programs that pack.sh put into FOLDER, and builds nothing: on a
#                                             machine for one use, for it lays libraries out under /
#
# PEAL_GPU_STAGES chooses among the stages below, and orders them; a stage that fails does not keep the next from
# running. PEAL_GPU_SECONDS (default: 540) ends all: a stage that no longer fits is left out, and said. NCCL and cuDNN
# may lie in PyTorch's own packages (nvidia/ in site-packages).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
packed=
if [[ ${1-} == --packed ]]; then
  packed=$(cd "${2:?--packed wants the folder that pack.sh filled}" && pwd)
  shift 2
fi
out=$(mkdir -p "${1:-build/gpu-run}" && cd "${1:-build/gpu-run}" && pwd)
stages=${PEAL_GPU_STAGES:-probe tests ipc-2 ranks-ipc-2 ranks-nccl-2 bench failures bandwidth bandwidth-nccl profile mps sanitizer \
  ranks-mpi-2 ipc-3 ranks-ipc-3 ranks-nccl-3 train}
seconds=${PEAL_GPU_SECONDS:-540}
python=$(command -v python3 || echo python3)
failed=()

command -v nvidia-smi >/dev/null || { echo "tests/gpu/run.sh: no nvidia-smi: this machine has no NVIDIA GPU" >&2; exit 1; }
export PATH=$PATH:/usr/local/cuda/bin

# stage NAME LIMIT COMMAND... : of at most LIMIT seconds, and of those that are left.
stage() {
  local name=$1 limit=$2 start=$SECONDS left=$((seconds - SECONDS)) status=0
  shift 2
  if ((left < 15)); then
    printf '%-16s left out: %d s are over\n' "$name" "$seconds" >>"$out/stages.txt"
    return
  fi
  printf '\n===== %s (at %d s)\n' "$name" "$SECONDS"
  limit=$((limit < left ? limit : left)) "$@" 2>&1 | tee "$out/$name.log" || status=1
  printf '%-16s %s, %d s\n' "$name" "$( ((status)) && echo FAILED || echo passed)" $((SECONDS - start)) |
    tee -a "$out/stages.txt"
  ((status == 0)) || failed+=("$name")
}

# Where PyTorch's packages keep NCCL, cuDNN and, since CUDA 13, all else.
site=$("$python" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
if [[ -n $packed ]]; then
  programs=$packed/programs
  tests/gpu/unpack.sh "$packed" / "$site"/{cu13,cudnn,nccl}/lib /usr/local/cuda/lib64
else
  programs=build/cuda
fi

program() {
  if [[ -n $packed ]]; then echo "$programs/bin/$1"; return; fi
  case $1 in
    gpu_*) echo "build/cuda/tests/gpu/$1" ;;
    *_perf) echo "build/cuda/bench/perf/$1" ;;
    [0-9]*) echo "build/cuda/examples/$1" ;;
    *) echo "build/cuda/bench/$1" ;;
  esac
}

build() {
  # Another compiler's new warning must not cost the machine's time.
  cmake --preset cuda -DCMAKE_PREFIX_PATH="$site/nccl;$site/cudnn;$site/cu13" -DCMAKE_CUDA_ARCHITECTURES=native \
    -DPEAL_WERROR=OFF -DPEAL_UNITY=ON --log-level=WARNING &&
    cmake --build --preset cuda -j "$(nproc)" --target peal_gpu_tests step_time all_reduce_perf 05_train_mnist
}

probe() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv,noheader
  nproc
  command -v nvcc compute-sanitizer ncu nvidia-cuda-mps-control mpirun
  [[ -z $packed ]] || echo "programs of $(cat "$programs/commit" 2>/dev/null)"
  "$python" -c 'import torch; print("PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())'
  local name lost=0
  for name in gpu_ops gpu_ranks step_time; do
    ldd "$(program "$name")" | grep 'not found' && lost=1
  done
  return "$lost"
}

# Side by side, but for what counts the device's memory. A test that is skipped found no device: that is a failure here.
run_tests() {
  local name status=0 tests=(device_layer table models ops captured_step ddp ddp_options)
  local -A running
  for name in "${tests[@]}"; do
    OMP_NUM_THREADS=2 timeout "$limit" "$(program "gpu_$name")" >"$out/tests-$name.log" 2>&1 &
    running[$name]=$!
    [[ $name != device_layer ]] || wait -f "$!"
  done
  for name in "${tests[@]}"; do
    wait "${running[$name]}"
    local code=$?
    if ((code == 0)); then
      printf '%s: %s\n' "$name" "$(grep 'test cases' "$out/tests-$name.log")"
    else
      status=1
      printf '%s: FAILED with %d\n' "$name" "$code"
      grep -vE '^(=+)?$' "$out/tests-$name.log" | head -40
      tail -3 "$out/tests-$name.log"
    fi
  done
  return $status
}

# N ranks on one GPU: over CUDA IPC, or through MPI, or over NCCL where each process says that it is a host of its own.
ranks() {
  local over=$1 n=$2 name=$3
  case $over in
    mpi) PEAL_CUDA_TRANSPORT=mpi timeout "$limit" launch/tools/peal-mpirun -n "$n" "$(program "$name")" ;;
    nccl)
      # shellcheck disable=SC2016 # each rank's own shell expands it
      timeout "$limit" launch/tools/peal-mpirun -n "$n" bash -c \
        'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo exec "$0"' "$(program "$name")" ;;
    *) timeout "$limit" launch/tools/peal-mpirun -n "$n" "$(program "$name")" ;;
  esac
}

# What goes wrong: the last line of each is what rank 0 was told. The ranks leave without MPI_Finalize: no exit code.
failures() {
  local what log status=0
  for what in fails "does not come" "calls something else" "reduces otherwise"; do
    log="$out/failures-${what// /-}.log"
    # By mail what differs is not seen before it is reduced.
    PEAL_ALGO=$([[ $what == reduces* ]] && echo all_reduce=ring) \
      PEAL_TIMEOUT=8 timeout 40 launch/tools/peal-mpirun -n 2 "$(program gpu_ipc_failure)" \
      --test-case="a rank that $what" >"$log" 2>&1
    tail -5 "$log"
    grep -q "all was well" "$log" || status=1
  done
  return $status
}

# Programs again under compute-sanitizer, which slows kernels down by an order of magnitude.
sanitize() {
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here"; return 1; }
  local name status=0
  for name in table device_layer; do
    timeout $((limit / 2)) compute-sanitizer --error-exitcode 9 --report-api-errors no "$(program "gpu_$name")" 2>&1 |
      tail -25 || status=1
  done
  return $status
}

bandwidth() {
  timeout "$limit" launch/tools/peal-mpirun -n 2 "$(program all_reduce_perf)" --device cuda -b 1K -e 64M -f 4 -R 2
}

# Over NCCL a call's own time, in plain memory and in memory that it knows: two ranks on one GPU, by sockets.
bandwidth_nccl() {
  local memory
  for memory in 0 2; do
    # shellcheck disable=SC2016 # each rank's own shell expands it
    timeout "$limit" launch/tools/peal-mpirun -n 2 bash -c \
      'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo exec "$0" "$@"' "$(program all_reduce_perf)" \
      --device cuda -b 4K -e 64K -f 4 -n 40 -R "$memory" || return 1
  done
}

# Ranks that share a GPU take turns on it; under MPS they run beside each other, which CUDA IPC wants.
under_mps() {
  command -v nvidia-cuda-mps-control >/dev/null || { echo "no MPS here"; return 1; }
  local pipes status=0
  pipes=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY=$pipes CUDA_MPS_LOG_DIRECTORY=$pipes
  nvidia-cuda-mps-control -d || return 1
  bandwidth || status=1
  echo quit | nvidia-cuda-mps-control
  return $status
}

profile() {
  local model
  for model in gpt2 resnet18; do
    timeout "$limit" "$(program step_time)" --model "$model" --batch $([[ $model == gpt2 ]] && echo 8 || echo 256) \
      --steps 3 --reps 3 --precision bf16 --device cuda --profile | head -40
  done
}

train() {
  local data=${PEAL_MNIST:-synthetic}
  timeout "$limit" "$(program 05_train_mnist)" --data "$data" --device cuda --seed 0 &&
    timeout "$limit" launch/tools/peal-mpirun -n 2 "$(program 05_train_mnist)" --data "$data" --device cuda --seed 0
}

bench() {
  timeout "$limit" "$python" bench/peers/ratios.py "$programs" --device cuda --python "$python" \
    --pairs "${PEAL_GPU_PAIRS:-5}" --json "$out/ratios.json"
}

: >"$out/stages.txt"
if [[ -z $packed ]]; then
  seconds=$((seconds + 600)) stage build 600 build
  seconds=$((seconds + SECONDS))  # what the build took is not the stages'
fi
for name in $stages; do
  n=${name##*-}
  case $name in
    probe) stage probe 30 probe ;;
    tests) stage tests 200 run_tests ;;
    ipc-*) stage "$name" 60 ranks ipc "$n" gpu_ipc ;;
    ranks-*) over=${name#ranks-} && stage "$name" 90 ranks "${over%-*}" "$n" gpu_ranks ;;
    failures) stage failures 120 failures ;;
    bandwidth) stage bandwidth 60 bandwidth ;;
    bandwidth-nccl) stage bandwidth-nccl 60 bandwidth_nccl ;;
    mps) stage mps 60 under_mps ;;
    profile) stage profile 60 profile ;;
    sanitizer) stage sanitizer 240 sanitize ;;
    train) stage train 60 train ;;
    bench) stage bench 300 bench ;;
    *) echo "tests/gpu/run.sh: no stage $name" >&2; exit 2 ;;
  esac
done

tables=$(grep -hE ' ms .*, [0-9]+' "$out/bench.log" 2>/dev/null | sort -u; grep -h '^ *[0-9]' "$out"/bandwidth{,-nccl}.log 2>/dev/null)
tar czf "$out/logs.tgz" -C "$out" --exclude=logs.tgz . 2>/dev/null
find "$out" -name '*.log' -delete
printf '\n===== tables\n%s\n' "$tables"
printf '\n===== all stages\n'
cat "$out/stages.txt"
if ((${#failed[@]})); then
  printf '\ntests/gpu/run.sh: FAILED: %s (logs in %s/logs.tgz)\n' "${failed[*]}" "$out"
  exit 1
fi
printf '\ntests/gpu/run.sh: passed\n'
