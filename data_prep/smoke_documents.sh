#!/usr/bin/env bash
# The corpus of data_prep/smoke.sh, English to German, in documents -> data-bin/smoke_documents.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

corpus=data-bin/smoke_documents.corpus
[[ -d $corpus ]] || relumt synth --seed 1 --documents 100 --valid-documents 10 --test-documents 20 --out "$corpus"
"$root/data_prep/prepare.sh" --src en --tgt de --tokenized-input --bpe none \
    --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" --out data-bin/smoke_documents
