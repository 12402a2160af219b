#!/usr/bin/env bash
# [RF] Figure 4: how much of the weight the top p % of keys hold in self-attention, on documents.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_figure4 "$@"
