#!/usr/bin/env bash
# [RF] Table 5: ReLUFormer without the scale factor and without the regulariser: BLEU and entropy.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_table5 "$@"
