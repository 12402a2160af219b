#!/usr/bin/env bash
# [RF] Table 6: documents of Europarl7, softmax, sparsemax and ReLUFormer: BLEU by the limit of their length.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_table6 "$@"
