#!/usr/bin/env bash
# [RF] Table 4: softmax, sparsemax, 1.5-entmax, ReLA-g and ReLUFormer: BLEU on IWSLT14 and WMT14, and decoding speed.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_runs reluformer_table4 "$@"
measure train_decode_speed.py
print_table
