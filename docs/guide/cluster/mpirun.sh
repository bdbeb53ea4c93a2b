#!/bin/bash
# Run on the first machine, with Open MPI: HOSTS=node0:4,node1:4 docs/guide/cluster/mpirun.sh. The first is rank 0's.
set -euo pipefail
hosts=${HOSTS:-localhost:2}
first=${hosts%%,*}
exec mpirun --host "$hosts" --bind-to none --mca odls_base_sigkill_timeout 5 \
  -x DPT_COORDINATOR="${first%%:*}:29400" \
  dpt train config.yaml
