#!/usr/bin/env bash
# Europarl7 English-German in documents -> data-bin/europarl7_en_de (relumt/prep/corpora/europarl7.py).
#
#   data_prep/europarl7_en_de.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#
# What is missing in DIR (raw) is downloaded into it; the authors' training documents have to be asked for.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus europarl7_en_de --out data-bin/europarl7_en_de "$@"
