#!/usr/bin/env bash
# WMT14 English-French -> data-bin/wmt14_en_fr, with newstest2013 and newstest2014.
# Downloads to raw/ if missing: Europarl v7, Common Crawl, UN, News Commentary v9, Giga.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus wmt14_en_fr "$@"
