#!/usr/bin/env bash
# [RL] Figure 7: null attention of ReLA-g, head by head, and maps of it in a report.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_runs rela_figure7 "$@"
report 10
print_table
