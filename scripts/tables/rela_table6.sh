#!/usr/bin/env bash
# [RL] Table 6: diversity of heads of softmax, 1.5-entmax and ReLA-g.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_table6 "$@"
