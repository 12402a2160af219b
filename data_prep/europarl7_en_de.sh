#!/usr/bin/env bash
# Europarl7 English-German in documents -> data-bin/europarl7_en_de. For options see --help.
# Downloads to raw/ if missing: Europarl v7, 658 MB. The authors' training documents must be requested.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
relumt corpus europarl7_en_de "$@"
