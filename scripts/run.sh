#!/usr/bin/env bash
# Train MODEL on DATASET, then translate and score the test set: scripts/run.sh DATASET MODEL [fairseq-train flags…]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

lock_named_run "$@"
"$root/scripts/train.sh" "$@"
"$root/scripts/evaluate.sh" "$1" "$2"
