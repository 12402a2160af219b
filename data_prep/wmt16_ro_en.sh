#!/usr/bin/env bash
# WMT16 Romanian-English -> data-bin/wmt16_ro_en; newsdev2016 and newstest2016 (relumt/prep/corpora/registry.py).
#
#   data_prep/wmt16_ro_en.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#
# What is missing in DIR (raw) is downloaded into it: Europarl v8, 225 MB, and SETIMES2.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus wmt16_ro_en --out data-bin/wmt16_ro_en "$@"
