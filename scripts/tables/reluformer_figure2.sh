#!/usr/bin/env bash
# [RF] Figure 2: how much of the score the top p % of slots hold.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_figure2 "$@"
