#!/usr/bin/env bash
# Train MODEL on DATASET, or resume training: scripts/train.sh DATASET MODEL [fairseq-train flags…]
# DATASET is a name in configs/datasets, or the path of a data-bin. If the dataset has `starts_from`, the model is
# trained on that dataset first and starts from its weights. --dry-run prints the command of fairseq and stops;
# --verbose shows all that it logs.
# Settings are environment variables, listed by --help:
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

run_stages --train -- "$@"
