#!/usr/bin/env bash
# WMT16 Romanian-English -> data-bin/wmt16_ro_en, with newsdev2016 and newstest2016.
# Downloads to raw/ if missing: Europarl v8, 225 MB, and SETIMES2.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus wmt16_ro_en "$@"
