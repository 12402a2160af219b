#!/usr/bin/env bash
# [RF] Table 2: ReLU in the place of softmax, with and without the scale factor: BLEU.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_table2 "$@"
