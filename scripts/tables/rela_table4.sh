#!/usr/bin/env bash
# [RL] Table 4: floating-point operations of softmax and ReLA-g; nothing is trained.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_table4 "$@"
