#!/usr/bin/env bash
# [RF] Fig. 2: how much of the score the top p % of slots hold.
# Settings: scripts/tables/memories.sh. Arguments: further flags of fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/memories.sh"

make_memories "$@"
relumt table reluformer_figure2 --runs "$RUNS" --dataset "$dataset"
