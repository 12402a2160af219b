#!/usr/bin/env bash
# scripts/run.sh, and then the numbers that `relumt analyze` measures of the run on the test set, in its analysis.json:
# scripts/analyze.sh DATASET MODEL [fairseq-train flags…]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

hold_named "$@"
"$root/scripts/run.sh" "$@"
folder=$(run_record to-analyze "$1" "$2")
[[ -z $folder ]] || relumt analyze "$folder" --numbers-only --out "$folder" || exit 1
