#!/usr/bin/env bash
# [RF] Figure 3: anisotropy of the value slots by their number.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_figure3 "$@"
