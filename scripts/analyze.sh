#!/usr/bin/env bash
# Do what scripts/run.sh does, then write what `relumt analyze` measures on the test set to the run's analysis.json:
# scripts/analyze.sh DATASET MODEL [fairseq-train flags…]
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

run_stages --train --evaluate --analyze -- "$@"
