#!/usr/bin/env bash
# [RL] Table 2: parameters, training and decoding speed of softmax, sparsemax, 1.5-entmax and ReLA-g.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_runs rela_table2 "$@"
measure train_decode_speed.py
print_table
