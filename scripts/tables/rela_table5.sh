#!/usr/bin/env bash
# [RL] Table 5: alignment error rate of softmax, sparsemax, 1.5-entmax and ReLA-g.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_table5 "$@"
