#!/usr/bin/env bash
# A small generated German-English corpus with documents and word alignments -> data-bin/smoke, which `make smoke` uses.
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../scripts/common.sh"

begin "$@"
refuse_arguments "$@"
corpus=data-bin/smoke.corpus
[[ -d $corpus ]] || relumt synth --seed 1 --documents 100 --valid-documents 10 --test-documents 20 --out "$corpus"
"$root/data_prep/prepare.sh" --src de --tgt en --tokenized-input --bpe none \
    --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" --out data-bin/smoke
