#!/usr/bin/env bash
# [RL] Figure 3: sparsity of sparsemax, 1.5-entmax and ReLA-g by layer.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_figure3 "$@"
