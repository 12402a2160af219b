#!/usr/bin/env bash
# [RF] Table 1: BLEU and the variance of a memory's output for relu, softmax and softmax_ln; and the training speed of
# every feed-forward variant.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_runs reluformer_table1 "$@"
read -r dataset _ < <(relumt grid "$table" --preset "$preset" --runs "$runs" --list)
speeds=$runs/$table-$dataset.json
if [[ ! -e $speeds ]] && here speeds; then
    variants=("$root"/configs/models/ffn_*.args)
    variants=("${variants[@]##*/}")
    "$python" "$root/benchmarks/training_speed.py" "$(run_record data-bin "$dataset" ffn_relu)" \
        --config "$root/configs/datasets/$dataset/train.args" --models "${variants[@]%.args}" --baseline ffn_relu \
        --json "$speeds" --flags ${flags[@]+"${flags[@]}"} >&2 || failed=1
fi
print_table
