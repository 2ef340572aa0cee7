#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal-run starts a job on two hosts: sums are right, ranks train as one process does, it goes on without a rank that is killed;
# and where the cable is cut, every rank ends by the deadline and names one of the other host, and peal-run and its part there
# end too.
#   peal_run_test.sh PEAL_RUN PROGRAM (tests/mpi/endings.cpp) [PARITY (tests/mpi/parity_test.cpp)]
set -euo pipefail
peal_run=${1:?usage: peal_run_test.sh PEAL_RUN PROGRAM [PARITY]} program=${2:?} parity=${3-}
# shellcheck source=tests/launch/two_hosts/frame.sh
source "$(dirname "$0")/frame.sh"

# shellcheck disable=SC2054
hosts=(--rsh "$folder/rsh" --hosts 10.78.0.1:2,10.78.0.2:2)
run() { on 0 timeout 60 "$peal_run" "${hosts[@]}" "$@" >"$folder/0" 2>&1; }

PEAL_TIMEOUT=30 run --tag "$program" sums || fail 'peal-run'
[[ $(cat "$folder/0") == '[0] sums of 4 ranks are right' ]] || fail 'sums by peal-run'
if [[ -n $parity ]]; then
  PEAL_TIMEOUT=30 run --tag "$parity" || fail 'training'
  [[ $(grep -c 'SUCCESS!' "$folder/0") -eq 4 ]] || fail 'training'
fi
# shellcheck disable=SC2016
PEAL_TIMEOUT=30 run --elastic --max-restarts 1 \
  sh -c 'if test $WORLD_SIZE -eq 4; then exec "$0" die 20011; else exec "$0" sums; fi' "$program" || fail 'peal-run, again'
grep -q 'peal-run: rank 3 (host 10.78.0.2, process [0-9]*) was ended by SIGKILL' "$folder/0" || fail 'rank 3 is not named'
grep -q 'sums of 3 ranks are right' "$folder/0" || fail 'sums of who is left'

# A remote shell whose connection goes over the cable, as ssh's, and does not notice that nothing comes any more.
if ! command -v python3 >/dev/null; then
  echo 'two hosts by peal-run; LEFT OUT the cable that is cut: there is no python3'
  exit
fi
cat >"$folder/over_cable" <<'TEXT'
import os, socket, subprocess, sys, threading
if sys.argv[1] == "serve":
    listener = socket.create_server(("10.78.0.2", 2222))
    while True:
        connection = listener.accept()[0]
        command = b""
        while not command.endswith(b"\n"):
            command += connection.recv(1)
        subprocess.Popen(["bash", "-c", command.decode()], stdin=connection, stdout=connection, stderr=subprocess.DEVNULL)
        connection.close()
connection = socket.create_connection(("10.78.0.2", 2222))
connection.sendall(sys.argv[2].encode() + b"\n")
def hand_over():
    while piece := os.read(0, 4096):
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)
threading.Thread(target=hand_over, daemon=True).start()
while piece := connection.recv(4096):
    os.write(1, piece)
TEXT
# shellcheck disable=SC2016
printf '#!/bin/bash\nif [[ $1 == 10.78.0.1 ]]; then exec bash -c "$2"; fi\nexec python3 "%s" "$@"\n' "$folder/over_cable" >"$folder/rsh"
on 1 python3 "$folder/over_cable" serve &
holders+=($!)
for ((i = 0; i < 500; ++i)); do
  if [[ -n $(on 1 ss -Hltn 'sport = 2222') ]]; then break; fi
  sleep 0.02
done
: >"$folder/0"  # what the job before has written is not this one's
# shellcheck disable=SC2016
PEAL_TIMEOUT=4 run --grace 1 sh -c 'exec "$0" die 50000000 2>"$1/rank.$RANK"' "$program" "$folder" &
job=$!
working
[[ -n $(remaining 1 "$peal_run") ]] || fail 'no rank is on the other host'
cut_cable
status=0
wait "$job" || status=$?
[[ $status -ne 0 && $status -ne 124 ]] || fail "cut: exit status $status"
grep -Eq 'peal-run: rank [01] \(host 10.78.0.1, process [0-9]+\) ended with exit code 1' "$folder/0" ||
  fail 'cut: peal-run did not name a rank'
gone_by_the_deadline "$program" "$peal_run"
names_the_other "$folder"/rank.[0-3]
echo 'two hosts by peal-run'
