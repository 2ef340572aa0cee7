#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers of what reads files and connections (clang with libFuzzer, AddressSanitizer and UBSan) and runs them, two at a
# time, from the seeds that a program writes. Ends at the first finding, with the file that shows it.
#   tests/fuzz/run.sh FOLDER [libFuzzer options]     FOLDER: where to build, and where corpora are kept
#   tests/fuzz/run.sh build/fuzz -max_total_time=600
# PEAL_FUZZ_OPTIMIZE=-O0 builds in half of the time, for few inputs, each of which takes three times as long.
# Skips (77) where there is no clang with libFuzzer: apt-get install clang libclang-rt-14-dev
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?usage: run.sh FOLDER [libFuzzer options]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

probe=$folder/probe
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$probe.cpp"
if ! clang++ -fsanitize=fuzzer,address,undefined "$probe.cpp" -o "$probe" 2>"$probe.log"; then
  echo 'SKIPPED: no clang++ here builds with libFuzzer (Debian: apt-get install clang libclang-rt-14-dev):'
  sed 1q "$probe.log"
  exit 77
fi

cmake -S "$here" -B "$folder/build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ \
  "-DPEAL_FUZZ_OPTIMIZE=${PEAL_FUZZ_OPTIMIZE:--O1}" --log-level=WARNING
cmake --build "$folder/build"
"$folder/build/seeds" "$folder/seeds"
cd "$folder" # findings are written here
# fuzz NAME OPTIONS...: 255, which ends xargs, where it finds something.
fuzz() {
  local name=$1 options=()
  shift
  [[ ! -f $here/$name.dict ]] || options+=("-dict=$here/$name.dict")
  mkdir -p "$folder/corpus/$name"
  "$folder/build/$name" -print_final_stats=1 -verbosity=1 "${options[@]}" "$@" \
    "$folder/corpus/$name" "$folder/seeds/$name" >"$folder/$name.log" 2>&1 || {
    tail -n 60 "$folder/$name.log"
    echo "FAILED: fuzzing $name found something; the input is named above, in $folder"
    exit 255
  }
  local figures
  figures=$(grep -E '^(Done|stat::number_of_executed_units|stat::new_units_added|stat::peak_rss_mb)' "$folder/$name.log")
  printf 'fuzz: %s\n%s\n' "$name $*" "$figures"
}
export -f fuzz
export here folder
printf '%s\n' csv idx image jsonl safetensors tar tcp text tokens |
  xargs -P 2 -I NAME bash -euo pipefail -c 'fuzz NAME "$@"' fuzz "$@"
