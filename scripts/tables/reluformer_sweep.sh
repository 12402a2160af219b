#!/usr/bin/env bash
# gamma, lambda_1 and lambda_2 of ReLUFormer, which [RF] does not print: validation loss and BLEU by setting.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_sweep "$@"
