#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# launch/cluster/: the batch script under stand-ins for srun and scontrol, whose tasks are ranks on this machine, as if they
# were on two nodes; and that the container file copies what the build needs.
#   cluster_test.sh ROOT PROGRAM (tests/mpi/endings.cpp) [TRAINING (05_train_mnist)]
set -euo pipefail

root=${1:?usage: cluster_test.sh ROOT PROGRAM [TRAINING]} program=${2:?} training=${3-}
script=$root/launch/cluster/slurm.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir bin
fail() {
  echo "cluster_test: $*" >&2
  head -c 4000 out calls ranks 2>/dev/null >&2
  exit 1
}

# Says how it was called, and starts the tasks with what Slurm's srun sets; ends with the highest of their statuses.
cat >bin/srun <<'TEXT'
#!/usr/bin/env bash
options=()
while [[ $1 == -* ]]; do options+=("$1") && shift; done
echo "srun ${options[*]}" >>calls
: >ranks
for ((task = 0; task < SLURM_NTASKS; ++task)); do
  node=$((task / 2))
  echo "$MASTER_ADDR $MASTER_PORT $PEAL_STORE_SECRET $*" >>ranks
  SLURM_PROCID=$task SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$SLURM_NTASKS SLURM_LOCALID=$((task % 2)) SLURM_NODEID=$node \
    SLURM_STEP_TASKS_PER_NODE='2(x2)' PEAL_NODE=node-$node timeout 100 "$@" &
  pids+=($!)
done
echo "${pids[*]}" >tasks
for pid in "${pids[@]}"; do
  wait "$pid" || { status=$? && highest=$((status > highest ? status : highest)); }
done
exit "${highest:-0}"
TEXT
# This machine is the first node.
cat >bin/scontrol <<'TEXT'
#!/usr/bin/env bash
echo "scontrol $*" >>calls
case $* in
  'show hostnames node[1-2]') printf 'localhost\nnode2\n' ;;
  'requeue '*) exit "${requeue_status-0}" ;;
  *) exit 1 ;;
esac
TEXT
chmod +x bin/srun bin/scontrol
# submit JOB ARGUMENTS...: the script as Slurm would run it; its exit status is in `status`
submit() {
  local job=$1
  shift
  : >calls
  status=0
  PATH="$folder/bin:$PATH" SLURM_JOB_ID=$job SLURM_JOB_NODELIST='node[1-2]' SLURM_NTASKS=4 SLURM_CPUS_PER_TASK=3 \
    "$script" "$@" >out 2>&1 || status=$?
}

bash -n "$script" || fail 'no script'
for option in --nodes= --ntasks-per-node= --signal=TERM@ --requeue; do
  grep -q "^#SBATCH $option" "$script" || fail "it does not ask for $option"
done
# Slurm reads them up to the first command.
[[ $(sed '/^[^#]/,$d' "$script" | grep -c '^#SBATCH') -eq $(grep -c '^#SBATCH' "$script") ]] || fail 'an #SBATCH after a command'

submit 24007 "$program" sums
[[ $status -eq 0 && $(cat out) == 'sums of 4 ranks are right' ]] || fail "four ranks: $status"
for option in --mpi=none --export=ALL --cpus-per-task=3 --kill-on-bad-exit=0 --wait=60; do
  grep -qE "^srun .*$option( |$)" calls || fail "srun is not given $option"
done
[[ $(cut -d ' ' -f 1-2,4- ranks | sort -u) == "localhost 20007 $program sums --output_dir run-24007/ --save_strategy epoch --resume_from_checkpoint true" ]] ||
  fail 'where they meet, or their arguments'
[[ $(cut -d ' ' -f 3 ranks | sort -u) =~ ^[0-9a-f]{32}$ ]] || fail 'no secret'
secret=$(cut -d ' ' -f 3 ranks | sort -u)
own=(--output_dir=mine/ --save-strategy steps --resume_from_checkpoint mine/)
submit 24008 "$program" sums "${own[@]}"
[[ $status -eq 0 && $(cut -d ' ' -f 2,4- ranks | sort -u) == "20008 $program sums ${own[*]}" ]] ||
  fail 'the own options are not kept'
[[ $(cut -d ' ' -f 3 ranks | sort -u) != "$secret" ]] || fail 'two jobs have one secret'
! grep -q requeue calls || fail 'a job that is done goes back into the queue'

submit 7 "$program" differ
[[ $status -eq 1 ]] || fail "ranks that fail: $status"
! grep -q requeue calls || fail 'a job that has failed goes back into the queue'
# shellcheck disable=SC2016
saves='mkdir -p "$0"; echo "$SLURM_PROCID" >"$0/checkpoint-1-step-$SLURM_JOB_ID.safetensors"; exit 143'
submit 7 bash -c "$saves" run-7/ --output_dir run-7/
[[ $status -eq 143 ]] && grep -qx 'scontrol requeue 7' calls || fail "ended by SIGTERM: $status"
submit 7 bash -c "${saves/checkpoint-1/other}" run-7/ --output-dir=run-7/
[[ $status -eq 143 ]] && ! grep -q requeue calls && grep -q 'before anything was saved' out ||
  fail "ended by SIGTERM, and nothing was saved: $status"
requeue_status=1 submit 8 bash -c "$saves" run-7/ --output_dir run-7/
[[ $status -eq 143 ]] && grep -q 'start it again' out || fail "a job that may not go back into the queue: $status"
submit 7
[[ $status -eq 2 ]] || fail "without a program: $status"

# SIGTERM at each task, as --signal has Slurm send it: the training saves, goes back into the queue, and goes on from there.
if [[ -n $training ]]; then
  export PEAL_LOG=info
  newest() { find run-9 -name '*.safetensors' 2>/dev/null | sort -V | tail -n 1; }
  for start in 1 2; do
    rm -f tasks out
    before=$(newest) || true
    # It may be any epoch by the time that SIGTERM comes.
    submit 9 "$training" --data synthetic --train-samples 24000 --per_device_train_batch_size 16 --num_train_epochs 40 &
    job=$!
    for ((look = 0; look < 1200; ++look)); do
      ! grep -qs 'first training step done' out || break
      sleep 0.05
    done
    [[ $look -lt 1200 ]] || fail "start $start does not begin"
    # shellcheck disable=SC2046
    kill -TERM $(cat tasks)
    wait "$job"
    grep -qx 'scontrol requeue 9' calls || fail "start $start does not end as one that has saved"
    [[ $(newest) != "$before" ]] || fail "start $start has not saved"
    [[ $start -eq 1 ]] || grep -q 'going on after step' out || fail 'it does not go on'
  done
fi

# Every COPY is of what is there, every folder of the build is copied, and commands are such.
container=$(sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$root/launch/cluster/Containerfile")
copied=$(sed -nE 's/^COPY (.*) [^ ]+$/\1/p' <<<"$container" | tr ' ' '\n')
for name in $copied; do
  [[ -e $root/$name ]] || fail "the container file copies $name, which is not there"
done
for name in CMakeLists.txt CMakePresets.json cmake $(sed -nE 's/^ *add_subdirectory\(([a-z]+).*/\1/p' "$root/CMakeLists.txt"); do
  [[ $name == tests ]] || grep -qx "$name" <<<"$copied" || fail "the container file does not copy $name"
done
sed -n 's/^RUN //p' <<<"$container" | bash -n || fail 'commands of the container file'
echo 'jobs of a cluster start, save and go on'
