#!/usr/bin/env bash
# A bitext of your own -> fairseq data-bin: read and normalize, check, tokenize and lowercase (if asked), clean, joint
# BPE, binarize.
#
#   data_prep/prepare.sh --src de --tgt en --train P --valid P --test P --out DIR [--tokenize] [--lowercase]
#
# P is a prefix: P.de and P.en, or P.de.gz and P.en.gz.
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../scripts/common.sh"
help_of=prepare
begin "$@"
relumt prepare "$@"
