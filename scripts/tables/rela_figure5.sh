#!/usr/bin/env bash
# [RL] Figure 5: diversity of heads by layer.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_figure5 "$@"
