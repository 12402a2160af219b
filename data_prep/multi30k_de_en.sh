#!/usr/bin/env bash
# Multi30k German-English -> data-bin/multi30k_de_en (relumt/prep/corpora/multi30k.py).
#
#   data_prep/multi30k_de_en.sh [--raw DIR] [--out DIR] [--bpe subword-nmt|sentencepiece] [--vocab-size N]
#
# What is missing in DIR (raw) is downloaded into it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus multi30k_de_en --out data-bin/multi30k_de_en "$@"
