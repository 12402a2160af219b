#!/usr/bin/env bash
# WMT18 English-Finnish -> data-bin/wmt18_en_fi; newstest2017 and newstest2018 (relumt/prep/corpora/registry.py).
#
#   data_prep/wmt18_en_fi.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#
# What is missing in DIR (raw) is downloaded into it: Europarl v8, Rapid, ParaCrawl and Wikipedia titles, 450 MB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus wmt18_en_fi --out data-bin/wmt18_en_fi "$@"
