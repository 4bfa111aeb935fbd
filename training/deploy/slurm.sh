#!/bin/bash
# 32 hosts with 8 GPUs each, a process for each GPU, which JAX finds by SLURM's variables: sbatch training/deploy/slurm.sh
# The job's time ends with a checkpoint, written in the two minutes before it, and the job is put into the queue again.
#SBATCH --job-name=training
#SBATCH --nodes=32
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
set -u
export KERAS_BACKEND=jax
corpus=${CORPUS:-data/shards} run=${RUN:-runs/hosts} model=${MODEL:-transformer_big}
begun=()
if [ -e "$run/config.json" ]; then begun=(--resume); fi
srun --kill-on-bad-exit=1 python -m training.train --model "$model" --data "prepared:$corpus" --workdir "$run" "${begun[@]}"
status=$?
if [ $status -eq 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $status
