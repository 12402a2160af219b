#!/usr/bin/env bash
# IWSLT14 German-English -> data-bin/iwslt14_de_en, as fairseq's recipe prepares it (relumt/prep/corpora/iwslt14.py).
#
#   data_prep/iwslt14_de_en.sh --raw DIR [--out DIR] [--without-tedx] [--without-misaligned]
#
# DIR holds de-en.tgz of IWSLT14, or its files.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt corpus iwslt14_de_en --out data-bin/iwslt14_de_en "$@"
