#!/usr/bin/env bash
# Train MODEL on DATASET, then translate and score the test set: scripts/run.sh DATASET MODEL [fairseq-train flags…]
# DATASET is a name in configs/datasets, or the path of a data-bin. --dry-run prints the commands of fairseq and stops;
# --verbose shows all that they log.
# Settings are environment variables, listed by --help:
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

run_stages --train --evaluate -- "$@"
