#!/usr/bin/env bash
# Anyone's bitext -> fairseq data-bin, in the steps of relumt/prep: read and normalise, check, tokenise and
# lower-case (if asked), clean train, joint BPE, binarise.
#
#   data_prep/prepare.sh --src de --tgt en --train P --valid P --test P --out DIR
#       [--bpe subword-nmt|sentencepiece|none] [--vocab-size N] [--tokenize] [--lowercase]
#
# P is a prefix: P.de and P.en, or P.de.gz and P.en.gz. --help lists every option.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

relumt prepare "$@"
