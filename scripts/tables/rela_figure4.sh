#!/usr/bin/env bash
# [RL] Figure 4: alignment error rate by layer, of the best head and of all.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table rela_figure4 "$@"
