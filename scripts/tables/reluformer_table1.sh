#!/usr/bin/env bash
# [RF] Table 1: BLEU and the variance of a memory's output, and the training speed of every feed-forward variant.
# Settings: scripts/tables/memories.sh. Arguments: further flags of fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/memories.sh"

make_memories "$@"
if [[ ! -e $RUNS/speed-$dataset.json ]]; then
    data_bin=$(run_record data-bin "$dataset" ffn_relu)
    variants=("$root"/configs/models/ffn_*.args)
    variants=("${variants[@]##*/}")
    "$python" "$root/benchmarks/training.py" "$data_bin" --config "$root/configs/datasets/$dataset/train.args" \
        --models "${variants[@]%.args}" --baseline ffn_relu --json "$RUNS/speed-$dataset.json" >&2
fi
relumt table reluformer_table1 --runs "$RUNS" --dataset "$dataset"
