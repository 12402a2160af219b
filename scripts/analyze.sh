#!/usr/bin/env bash
# Do what scripts/run.sh does, then write what `relumt analyze` measures on the test set to the run's analysis.json:
# scripts/analyze.sh DATASET MODEL [fairseq-train flags…]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

lock_named_run "$@"
"$root/scripts/run.sh" "$@"
folder=$(run_record folder-to-analyze "$1" "$2")
[[ -z $folder ]] || relumt analyze "$folder" --numbers-only --out "$folder" || exit 1
