#!/usr/bin/env bash
# Demonstrate everything from data to results: generate a corpus, binarize it, train softmax and ReLUFormer, translate
# and score the test set, print a table. Output goes to demo/; steps whose output exists are skipped.
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

begin "$@"
refuse_arguments "$@"

# Reduce fairseq's log to progress, validation loss and relumt's messages.
progress() {
    sed -nuE \
        -e 's/.*\| train_inner \| \{"epoch": ([0-9]+), .*"loss": "([^"]+)".*"wps": "([^"]+)".*"num_updates": "([0-9]+)".*/  epoch \1, update \4: loss \2, \3 tokens\/s/p' \
        -e 's/.*\| valid \| .*"valid_loss": "([^"]+)".*/  validation loss \1/p' \
        -e '/^relumt: /p'
}

corpus=demo/corpus
[[ -d $corpus ]] || relumt synth --seed 1 --documents 4000 --out "$corpus"
"$root/data_prep/prepare.sh" --src de --tgt en --tokenized-input --bpe none \
    --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" --out demo/data-bin
export DATA_BIN=demo/data-bin RUNS=demo/runs
for model in softmax reluformer; do
    echo "$model: train, translate, score"
    if ! "$root/scripts/run.sh" demo "$model" 2>&1 | progress; then
        echo "relumt: error: $model failed; its logs are in $RUNS/demo/$model/${SEED:-1}" >&2
        exit 1
    fi
done
echo
relumt table --runs "$RUNS" --dataset demo
