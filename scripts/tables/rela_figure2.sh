#!/usr/bin/env bash
# [RL] Figure 2: decoding speed by the length of the source.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_runs rela_figure2 "$@"
measure decoding_speed.py
print_table
