#!/usr/bin/env bash
# The first 20,000 lines of Europarl v7 in documents -> data-bin/europarl7_small.
# Downloads to raw/ if missing: Europarl v7, 658 MB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus europarl7_small "$@"
