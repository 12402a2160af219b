#!/usr/bin/env bash
# WMT14 English-German -> data-bin/wmt14_en_de, with newstest2013 and newstest2014.
# Downloads to raw/ if missing: Europarl v7, Common Crawl, News Commentary v9, 1.7 GB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus wmt14_en_de "$@"
