#!/usr/bin/env bash
# Train MODEL on DATASET, then translate and score its test set: scripts/run.sh DATASET MODEL [fairseq-train flags…]
set -euo pipefail
scripts=$(dirname "${BASH_SOURCE[0]}")

"$scripts/train.sh" "$@"
"$scripts/evaluate.sh" "$1" "$2"
