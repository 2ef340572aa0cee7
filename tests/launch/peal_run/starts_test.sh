#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What peal-run gives the ranks: variables, arguments, standard input and cores; and what it refuses to start.
set -euo pipefail
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
# shellcheck disable=SC2016
{
ends 0 --help
grep -q 'PROGRAM' out || failed 'no help'
ends 2
says 'which program?'
ends 2 -n two true
ends 2 -n 0 true
ends 2 --bind-to socket true
ends 2 -n 2 --min-ranks 3 true
says '--min-ranks is 3, and -n 2'
RANK=0 WORLD_SIZE=2 ends 2 -n 2 true
says 'torchrun started 2 processes, and each would start 2 ranks'
ends 127 -n 3 no-such-program-anywhere
[[ $(cat err) == "peal-run: cannot start 'no-such-program-anywhere': No such file or directory" ]] || failed 'not said once'
echo data >file
ends 126 ./file
says "cannot start './file': Permission denied"

# Variables of each; those of a launcher further out are gone.
names='$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT [$PMI_RANK$PMIX_RANK$CUDA_VISIBLE_DEVICES]'
for n in 1 2 3 5; do
  rm -f rank.* job.*
  PMI_RANK=0 PMI_SIZE=1 PMIX_RANK=0 ends 0 -n "$n" sh -c 'echo "'"$names"'" >rank.$RANK
    echo $MASTER_ADDR $MASTER_PORT $PEAL_STORE_SECRET $TORCHELASTIC_RUN_ID >job.$RANK'
  silent
  for ((rank = 0; rank < n; ++rank)); do
    [[ $(cat "rank.$rank") == "$rank $n $rank $n 0 []" ]] || failed "rank $rank of $n: $(cat "rank.$rank")"
    cmp job.0 "job.$rank" || failed 'they would not meet'
  done
  grep -qE '^127\.0\.0\.1 [0-9]{4,5} [0-9a-f]{32} [0-9a-f]{32}$' job.0 || failed "job: $(cat job.0)"
  cat job.0 >>all.jobs
done
[[ $(cut -d ' ' -f 3 all.jobs | sort -u | wc -l) == 4 && $(cut -d ' ' -f 4 all.jobs | sort -u | wc -l) == 4 ]] || failed 'jobs could meet'
ends 0 -n 2 --gpus 1,3 sh -c 'test $CUDA_VISIBLE_DEVICES = 1,3'
ends 0 --np=2 --master-port 12345 sh -c 'test $MASTER_PORT = 12345'
ends 0 -np 2 sh -c 'test $WORLD_SIZE = 2'
ends 0 -n2 sh -c 'test $WORLD_SIZE = 2'

# Arguments stay whole, also those that look like options, and after --.
printf '%s\0' 'a  b' '' $'line\nline' '-n' '9' '--tag' "quo'te\"\$HOME" >expected
ends 0 sh -c 'printf "%s\0" "$@"' - 'a  b' '' $'line\nline' -n 9 --tag "quo'te\"\$HOME"
cmp out expected || failed 'the arguments changed'
ends 0 -n 1 -- sh -c 'printf "%s\0" "$@"' - 'a  b' '' $'line\nline' -n 9 --tag "quo'te\"\$HOME"
cmp out expected || failed 'the arguments changed after --'
mkdir 'in a path'
printf '#!/bin/sh\nexit 5\n' >'in a path/program'
chmod +x 'in a path/program'
ends 5 'in a path/program'
PATH="$PWD/in a path:$PATH" ends 5 program

# Rank 0 has the standard input, the others an empty one.
echo hello >input
ends 0 -n 3 --tag cat <input
[[ $(cat out) == '[0] hello' ]] || failed 'standard input'

# Each its share of the cores.
allowed() { awk '$1 == "Cpus_allowed_list:" {print $2}' "/proc/self/status"; }
ends 0 -n 2 --bind-to none sh -c 'awk "\$1 == \"Cpus_allowed_list:\" {print \$2}" /proc/self/status >cpus.$RANK
  echo "$PEAL_BIND_TO" >bind.$RANK'
[[ $(cat bind.0) == none && $(cat bind.1) == none ]] || failed 'ranks that are not to be bound are not told'
[[ $(cat cpus.0) == "$(allowed)" && $(cat cpus.1) == "$(allowed)" ]] || failed 'bound, and was not to be'
ends 0 -n 2 sh -c 'awk "\$1 == \"Cpus_allowed_list:\" {print \$2}" /proc/self/status >cpus.$RANK'
[[ $(allowed) != *[,-]* || $(cat cpus.0) != "$(cat cpus.1)" || $(lscpu -p=core | grep -v '#' | sort -u | wc -l) -lt 2 ]] ||
  failed 'two ranks have the same cores'

if [[ -n $program ]]; then
  for n in 1 2 3 5; do
    ends 0 -n "$n" "$program" sums
    [[ $(cat out) == "sums of $n ranks are right" ]] || failed "sums of $n"
  done
  # Jobs that start at once do not meet, and find ports of their own.
  for ((time = 0; time < 10; ++time)); do
    jobs=()
    for job in 0 1 2; do
      timeout 60 "$peal_run" -n 2 "$program" sums >"out.$job" 2>"err.$job" &
      jobs+=($!)
    done
    for job in 0 1 2; do
      wait "${jobs[job]}" || failed "job $job of three at once: $(cat "err.$job")"
      [[ $(cat "out.$job") == 'sums of 2 ranks are right' ]] || failed "sums of three jobs: $(cat "out.$job")"
    done
  done
  PEAL_STORE_SECRET=of-another-job OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 ends 0 -n 2 "$program" sums
fi
}
echo 'ranks start'
