#!/usr/bin/env bash
# [RF] Fig. 3: how alike the values of the slots are (Eq. 4).
# Settings: scripts/tables/memories.sh. Arguments: further flags of fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/memories.sh"

make_memories "$@"
relumt table reluformer_figure3 --runs "$RUNS" --dataset "$dataset"
