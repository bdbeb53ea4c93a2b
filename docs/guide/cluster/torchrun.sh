#!/bin/bash
# Run on each machine: NODES=2 HEAD=node0 docs/guide/cluster/torchrun.sh. Without NODES: on this machine only.
set -euo pipefail
exec torchrun --no-python --nnodes "${NODES:-1}" --nproc-per-node "${PROCESSES:-2}" --max-restarts 3 \
  --rdzv-backend c10d --rdzv-endpoint "${HEAD:-localhost}:29500" --rdzv-id lenet \
  dpt train config.yaml
