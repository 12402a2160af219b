#!/usr/bin/env bash
# [RF] Figure 1: BLEU by the size of memories, for relu, softmax and softmax_ln.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_figure1 "$@"
