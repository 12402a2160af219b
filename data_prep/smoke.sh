#!/usr/bin/env bash
# A small generated corpus, German to English, with documents and word alignments -> data-bin/smoke: what `make smoke`
# trains on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

corpus=data-bin/smoke.corpus
[[ -d $corpus ]] || relumt synth --seed 1 --documents 100 --valid-documents 10 --test-documents 20 --out "$corpus"
"$root/data_prep/prepare.sh" --src de --tgt en --tokenized-input --bpe none \
    --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" --out data-bin/smoke
