#!/usr/bin/env bash
# WMT18 Chinese-English -> data-bin/wmt18_zh_en; newstest2017 and newstest2018 (relumt/prep/corpora/registry.py).
#
#   data_prep/wmt18_zh_en.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#
# What is missing in DIR (raw) is downloaded into it: News Commentary v13 and the UN's, 1.5 GB; CWMT's has to be asked for.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus wmt18_zh_en --out data-bin/wmt18_zh_en "$@"
