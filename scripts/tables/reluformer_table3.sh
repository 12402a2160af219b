#!/usr/bin/env bash
# [RF] Table 3: entropy of the weights of softmax and ReLU.
# Arguments: scripts/tables/tables.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

make_table reluformer_table3 "$@"
