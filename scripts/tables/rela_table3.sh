#!/usr/bin/env bash
# [RL] Table 3: softmax, sparsemax, 1.5-entmax and ReLA-g on four language pairs: BLEU.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_table3 "$@"
