#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training as a job of Slurm's, whose ranks srun starts, without MPI. Options of sbatch's own stand before the script:
#   sbatch --nodes=4 --partition=NAME launch/cluster/slurm.sh PROGRAM [arguments]
# PROGRAM is at one path on all nodes, and takes the options of training programs: without --save it is given run-JOB/, a
# folder that all nodes have to see, and without --resume auto; or, where an option has an underscore, as the Trainer's do,
# without --output_dir, --save_strategy and --resume_from_checkpoint that folder, epoch and true. Two minutes before its time is up, three at most, all ranks
# get SIGTERM: they save, and the job goes back into the queue under its number, to go on from there. docs/cluster.md says
# what else to set.
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
# The Trainer's options have underscores.
if [[ " $*" =~ \ --[a-z]+_[a-z_]+ ]]; then
  folder=--output_dir resume=--resume_from_checkpoint newest=true
  [[ " $* " == *' --save_strategy'[\ =]* ]] || set -- "$@" --save_strategy epoch
else
  folder=--save resume=--resume newest=auto
fi
[[ " $* " == *" $folder"[\ =]* ]] || set -- "$@" "$folder" "run-$SLURM_JOB_ID/"
[[ " $* " == *" $resume"[\ =]* ]] || set -- "$@" "$resume" "$newest"
save='' before=''
for word in "$@"; do
  [[ $before != "$folder" ]] || save=$word
  [[ $word != "$folder"=* ]] || save=${word#*=}
  before=$word
done
# What is saved there, and when it was.
saved() {
  find "$save" -maxdepth 1 -type f \( -name 'checkpoint-*.safetensors' -o -path "$save" \) -printf '%p %T@\n' 2>/dev/null | sort
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
  scontrol requeue "$SLURM_JOB_ID" || echo "slurm.sh: it cannot; start it again with the same $folder and $resume $newest" >&2
fi
exit "$status"
