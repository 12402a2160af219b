#!/usr/bin/env bash
# WMT14 English-German -> data-bin/wmt14_en_de; newstest2013 and newstest2014 (relumt/prep/corpora/registry.py).
#
#   data_prep/wmt14_en_de.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#
# What is missing in DIR (raw) is downloaded into it: Europarl v7, Common Crawl, News Commentary v9, 1.7 GB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus wmt14_en_de --out data-bin/wmt14_en_de "$@"
