#!/usr/bin/env bash
# Train MODEL on DATASET, or resume: scripts/train.sh DATASET MODEL [fairseq-train flags…]
# DATASET is a folder in configs/datasets or the path of a data-bin; scripts/common.sh lists the settings.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

require_names "$@"
folder=$(run_record folder "$1" "$2")
hold_run "$folder"
plan=$(run_record start "$@")
[[ -n $plan ]] || exit 0 # trained already
mapfile -t plan <<<"$plan"
log=${plan[0]}
"$python" -P -m fairseq_cli.train "${plan[@]:1}" 2>&1 | tee -a "$log"
run_record trained "$1" "$2"
