#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal launch: peal-run's options and statuses, what it takes from a config file, and what it says.
set -euo pipefail
# shellcheck source=tests/launch/peal/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
# shellcheck disable=SC2016
{
ends 2 launch
says 'peal launch: which program?'
ends 2 launch -n 0 true
ends 0 launch -n 2 --tag sh -c 'echo $RANK of $WORLD_SIZE'
[[ $(sort out) == $'[0] 0 of 2\n[1] 1 of 2' && $(wc -l <err) == 1 ]] || failed 'two ranks, and a line'
says 'peal launch: 2 ranks on this machine'
says 'no config file'
PEAL_LOG=warning ends 0 launch true
silent
ends 7 launch -n 2 sh -c 'exit $((RANK * 7))'
grep -q '^peal launch: rank 1 .*ended with exit code 7' err || failed 'which rank failed'
ends 127 launch no-such-program-anywhere
ends 0 launch -n 3 "$program" sums
prints 'sums of 3 ranks are right'

# The file is for what the command line does not say, and variables that are set stay.
mkdir -p home/peal
echo '{"ranks_per_node": 2, "precision": "bf16"}' >home/peal/config.json
ends 0 launch sh -c 'echo $RANK $PEAL_DEVICE $PEAL_PRECISION'
[[ $(sort out) == $'0 cpu bf16\n1 cpu bf16' ]] || failed 'by the file'
says "device cpu, precision bf16; $folder/home/peal/config.json"
PEAL_PRECISION=f16 ends 0 launch -n 1 sh -c 'echo $RANK $PEAL_PRECISION'
[[ $(cat out) == '0 f16' ]] || failed 'the command line goes first'
for none in 'launch --config none' 'launch --config=none'; do
  # shellcheck disable=SC2086
  ends 0 $none sh -c 'echo $RANK[$PEAL_PRECISION]'
  [[ $(cat out) == '0[]' ]] || failed 'without the file'
done
echo '{"nodes": 2, "hosts": "localhost,other", "ranks_per_node": 1}' >two.json
ends 0 launch --config two.json --hosts localhost:3 sh -c 'echo $WORLD_SIZE'
[[ $(sort -u out) == 3 ]] || failed 'hosts of the command line'
ends 2 launch -n 4 --config two.json true
says 'two.json: nodes and ranks_per_node are for 2 ranks, and -n is 4'
ends 2 launch --keep-survivors --config two.json true
says 'two.json: hosts are localhost,other, and --keep-survivors'
ends 0 launch -n 2 --hosts localhost:2 --config none "$program" sums
prints 'sums of 2 ranks are right'
ends 2 launch --config nowhere.json true
says 'nowhere.json: there is no such file'
PEAL_CONFIG=nowhere.json ends 2 launch true
ends 2 lunch
says "there is no command 'lunch'; did you mean 'launch'?"
ends 2
prints 'estimate-memory'
ends 0 --help
[[ $(wc -l <out) -le 24 ]] || failed 'more than a screen'
}
echo 'peal launches'
