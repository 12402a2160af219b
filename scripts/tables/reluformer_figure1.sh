#!/usr/bin/env bash
# [RF] Fig. 1: BLEU by the number of memory slots.
# Settings: scripts/tables/memories.sh. Arguments: further flags of fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/memories.sh"

make_memories "$@"
relumt table reluformer_figure1 --runs "$RUNS" --dataset "$dataset"
