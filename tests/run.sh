#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test that this machine can run; ends with ctest's summary.
#   tests/run.sh [--preset release|debug|asan|tsan|cuda] [ctest options]
#   tests/run.sh -L mpi                  only what is labelled so
#   tests/run.sh --preset asan -R comm   under AddressSanitizer and UBSan, names that match
# Without a preset: cuda where there is a GPU and nvcc, else release. The preset tsan builds and runs what is
# labelled tsan: core, tape, data and comm over the threads transport. Runs from any folder, and again.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=''
case ${1-} in
  -h | --help)
    sed -n '3,8s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  --preset)
    preset=${2:?--preset expects release, debug, asan, tsan or cuda}
    shift 2
    ;;
esac

step() { printf '\n[tests, %d s] %s\n' "$SECONDS" "$*"; }

# nproc would believe OMP_NUM_THREADS, which is for the programs.
jobs=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [[ -z $preset ]]; then
  if [[ -x $nvcc ]] && nvidia-smi -L >/dev/null 2>&1; then preset=cuda; else preset=release; fi
fi
if [[ $preset == cuda ]]; then export CUDACXX=${CUDACXX:-$nvcc}; fi

step "install what is missing: launch/install_dependencies.sh"
"$root/launch/install_dependencies.sh"

cd "$root"
# As launch/quickstart.sh does.
fresh=()
[[ -e build/$preset/CMakeCache.txt ]] || fresh=(-DPEAL_UNITY=ON)
step "configure: cmake --preset $preset ${fresh[*]}"
cmake --preset "$preset" "${fresh[@]}" --log-level=WARNING

select=() targets=() runner=()
if [[ $preset == tsan ]]; then
  # A test program is called as its test is.
  select=(-L '^tsan$')
  mapfile -t targets < <(ctest --test-dir build/tsan -N "${select[@]}" | sed -n 's/^ *Test *#[0-9]*: //p')
  [[ ${#targets[@]} -gt 0 ]] || { echo "tests/run.sh: no test is labelled tsan" >&2; exit 1; }
  # GCC 12's runtime cannot start where the kernel randomises addresses more widely than it knows.
  if setarch "$(uname -m)" -R true 2>/dev/null; then runner=(setarch "$(uname -m)" -R); fi
fi
step "build: cmake --build --preset $preset ${targets[*]:+--target ${targets[*]}}"
cmake --build --preset "$preset" -j "$jobs" ${targets[@]:+--target "${targets[@]}"}

# Paths are quoted once more, for they may hold spaces. Open MPI unloads its parts before leaks are looked for, so
# that only the slow unwinder gets from them to libmpi, which tests/lsan.supp names.
export OMP_NUM_THREADS=1
export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:fast_unwind_on_malloc=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
export LSAN_OPTIONS="suppressions='$root/tests/lsan.supp':print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"
export TSAN_OPTIONS="suppressions='$root/tests/tsan.supp':second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
step "test: ctest --test-dir build/$preset ${select[*]} $*"
# Three more than cores: a third of the tests' time is waiting, for deadlines and for ranks that are gone.
exec ${runner[@]+"${runner[@]}"} ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
  -j "$((jobs + 3))" ${select[@]+"${select[@]}"} "$@"
