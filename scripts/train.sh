#!/usr/bin/env bash
# Train MODEL on DATASET, or resume training: scripts/train.sh DATASET MODEL [fairseq-train flags…]
# DATASET is a name in configs/datasets, or the path of a data-bin. If the dataset has `starts_from`, the model is
# trained on that dataset first and starts from its weights. scripts/common.sh lists the environment variables.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

require_names "$@"
pretraining=$(run_record pretraining-dataset "$@")
[[ -z $pretraining ]] || RELUMT_WAITS=1 "$root/scripts/train.sh" "$pretraining" "$2"
start_step start-training "$@"
if "$python" -P -m fairseq_cli.train "${arguments[@]}" 2>&1 | tee -a "$log"; then
    run_record finish-training "$1" "$2" || exit 1
else
    run_record record-divergence "$1" "$2" || exit 1
fi
