#!/usr/bin/env bash
# [RL] Figure 6: null rate of ReLA-g by layer, also with shuffled targets.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_figure6 "$@"
