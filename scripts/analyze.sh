#!/usr/bin/env bash
# Do what scripts/run.sh does, then write what `relumt analyze` measures on the test set to the run's analysis.json:
# scripts/analyze.sh DATASET MODEL [fairseq-train flags…]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin "$@"
train "$@"
evaluate "$1" "$2"
ask folder-to-analyze "$1" "$2"
((${#answer[@]} > 0)) || exit 0
lock_run "${answer[0]}"
relumt analyze --numbers-only --out "${answer[0]}" -- "${answer[0]}" || exit 1
