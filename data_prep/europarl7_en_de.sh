#!/usr/bin/env bash
# Europarl7 English-German in documents -> data-bin/europarl7_en_de.
# Downloads to raw/ if missing: Europarl v7, 658 MB. The authors' training documents must be requested.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus europarl7_en_de "$@"
