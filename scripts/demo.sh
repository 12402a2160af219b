#!/usr/bin/env bash
# Demonstrate everything from data to results: generate a corpus, binarize it, train softmax and ReLUFormer, translate
# and score the test set, print a table. Output goes to demo/; steps whose output exists are skipped.
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

begin "$@"
refuse_arguments "$@"

corpus=demo/corpus
[[ -d $corpus ]] || relumt synth --seed 1 --documents 4000 --out "$corpus"
"$root/data_prep/prepare.sh" --src de --tgt en --tokenized-input --bpe none \
    --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" --out demo/data-bin
export DATA_BIN=demo/data-bin RUNS=demo/runs
for model in softmax reluformer; do
    echo "$model: train, translate, score"
    "$root/scripts/run.sh" demo "$model"
done
echo
relumt table --runs "$RUNS" --dataset demo
