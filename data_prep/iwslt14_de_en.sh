#!/usr/bin/env bash
# IWSLT14 German-English -> data-bin/iwslt14_de_en, as fairseq's recipe prepares it (relumt/prep/corpora/iwslt14.py).
#
#   data_prep/iwslt14_de_en.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#       [--without-tedx] [--without-misaligned]
#
# What is missing in DIR (raw) is downloaded into it: de-en.tgz.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus iwslt14_de_en --out data-bin/iwslt14_de_en "$@"
