#!/usr/bin/env bash
# [RL] Table 1: softmax, sparsemax, 1.5-entmax, ReLA and its ablations: BLEU.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_table1 "$@"
