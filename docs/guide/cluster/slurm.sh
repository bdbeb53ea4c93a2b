#!/bin/bash
# Submit: sbatch docs/guide/cluster/slurm.sh
#SBATCH --job-name=lenet
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
##SBATCH --gpus-per-task=1   # on nodes with GPUs: remove one of the two #
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 dpt train config.yaml
code=$?
case $code in
  75) scontrol requeue "$SLURM_JOB_ID" ;;
  6|137) [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ] && scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit $code
