#!/usr/bin/env bash
# Translate the test set with a trained run and score it: scripts/evaluate.sh DATASET MODEL [fairseq-generate flags…]
# DATASET is a name in configs/datasets, or the path of a data-bin. --dry-run prints the commands of fairseq and stops;
# --verbose shows all that they log.
# Settings are environment variables, listed by --help:
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

run_stages --evaluate -- "$@"
