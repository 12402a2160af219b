#!/usr/bin/env bash
# [RF] Figure 5: self-attention on documents, how much of it goes far, and maps of it in a report.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_runs reluformer_figure5 "$@"
report 2
print_table
