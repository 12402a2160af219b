#!/usr/bin/env bash
# WMT18 English-Finnish -> data-bin/wmt18_en_fi, with newstest2017 and newstest2018.
# Downloads to raw/ if missing: Europarl v8, Rapid 2016, ParaCrawl v1 and Wikipedia titles, 450 MB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus wmt18_en_fi "$@"
