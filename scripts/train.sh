#!/usr/bin/env bash
# Train MODEL on DATASET, or resume: scripts/train.sh DATASET MODEL [fairseq-train flags…]
# If the dataset has `starts_from`, the model is trained on that dataset first, and starts from its weights.
# DATASET is a name in configs/datasets or the path of a data-bin; scripts/common.sh lists the settings.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

require_names "$@"
first=$(run_record starts-from "$@")
[[ -z $first ]] || RELUMT_WAITS=1 "$root/scripts/train.sh" "$first" "$2"
plan_step start "$@"
if "$python" -P -m fairseq_cli.train "${arguments[@]}" 2>&1 | tee -a "$log"; then
    run_record trained "$1" "$2" || exit 1
else
    run_record stopped "$1" "$2" || exit 1
fi
