#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training as a job of Slurm's, whose ranks srun starts, without MPI. Options of sbatch's own stand before the script:
#   sbatch --nodes=4 --partition=NAME launch/cluster/slurm.sh PROGRAM [arguments]
# PROGRAM is at one path on all nodes, and takes the Trainer's options (docs/training-arguments.md): without --output_dir it
# is given run-JOB/, a folder that all nodes have to see, without --save_strategy epoch, and without
# --resume_from_checkpoint true. Two minutes before its time is up, three at most, all ranks get SIGTERM: they save, and the
# job goes back into the queue under its number, to go on from there. docs/cluster.md says what else to set.
#SBATCH --job-name=peal
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

[[ $# -gt 0 ]] || { echo "usage: sbatch [options] slurm.sh PROGRAM [arguments]" >&2 && exit 2; }
[[ -n ${SLURM_JOB_ID-} ]] || { echo "slurm.sh: this is no job of Slurm's: start it with sbatch" >&2 && exit 2; }
# given OPTION VALUE: the option, where the arguments do not have it, in either of its spellings.
given() {
  local option
  for option in "$1" "${1//_/-}"; do
    [[ " $arguments " != *" --$option"[\ =]* ]] || return 0
  done
  words+=("--$1" "$2")
}
arguments=$* words=("$@")
given output_dir "run-$SLURM_JOB_ID/"
given save_strategy epoch
given resume_from_checkpoint true
set -- "${words[@]}"
save='' last=''
for word in "$@"; do
  [[ ! $last =~ ^--output[_-]dir$ ]] || save=$word
  [[ ! $word =~ ^--output[_-]dir= ]] || save=${word#*=}
  last=$word
done
# What is saved there, and when it was.
saved() {
  find "$save" -maxdepth 1 -type f -name 'checkpoint-*.safetensors' -printf '%p %T@\n' 2>/dev/null | sort
}
before=$(saved) || true

# Rank 0 is on the first node. Its port is below those that systems give to who asks for any, and another one than that of
# the jobs before and after this one, which may share the node.
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${hosts[0]:?scontrol names no node} MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))
PEAL_STORE_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export PEAL_STORE_SECRET

# srun takes neither the script's --cpus-per-task by itself (from 22.05 on) nor, where the job was given an --export, its
# variables. Ranks end one another, and say why: none is killed before it could, and who hangs a minute later is.
status=0
srun --mpi=none --export=ALL --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --cpu-bind=cores --kill-on-bad-exit=0 --wait=60 \
  "$@" || status=$?

# 128 and SIGTERM. Where the whole job is to end (scancel), this script gets a SIGTERM of its own and does not come here. A
# start that has saved nothing would come as far again, and so for ever.
if [[ $status -eq 143 && $(saved || true) == "$before" ]]; then
  echo "slurm.sh: ended by SIGTERM before anything was saved in '$save'; the job does not go back into the queue: give it a" \
    "longer --time, or a --signal=TERM@SECONDS that leaves a step and a save more" >&2
elif [[ $status -eq 143 ]]; then
  echo "slurm.sh: ended by SIGTERM; the job goes back into the queue, to go on from what it has saved"
  scontrol requeue "$SLURM_JOB_ID" || echo "slurm.sh: it cannot; start it again with the same --output_dir and --resume_from_checkpoint true" >&2
fi
exit "$status"
