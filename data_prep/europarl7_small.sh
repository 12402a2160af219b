#!/usr/bin/env bash
# The first 20,000 lines of Europarl v7, English-German, cut into documents, tested on those of Europarl7
# -> data-bin/europarl7_small (relumt/prep/corpora/europarl7.py).
#
#   data_prep/europarl7_small.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#
# What is missing in DIR (raw) is downloaded into it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus europarl7_small --out data-bin/europarl7_small "$@"
