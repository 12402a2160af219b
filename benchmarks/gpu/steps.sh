#!/usr/bin/env bash
# Item A, 4 minutes: how fast training is with --compile. benchmarks/gpu/steps.sh BUNDLE OUT [--tiny]
# For the papers' model on sentences and on documents, for stock fairseq, softmax, and compiled softmax and ReLUFormer:
# steps with new shapes, the same steps twice more, in which CUDA graphs are captured and replayed, and what the GPU and
# the CPU do in a step.
# Both prepare and compile at the same time, and time one after the other.
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
start "Training steps with --compile" 240 "$@"

training() { # in a folder of its own
    local title=$1 data=$2 config=$3 json=$out/$4.json lock=$work/lock
    out+=/$4
    shift 4
    mkdir -p "$out"
    step "$title" "$python" "$root/benchmarks/training.py" "data-bin/$data" --config "$root/configs/datasets/$config.toml" \
        --repeats 2 --threads 1 --lock "$lock" --json "$json" "$@" || true
}

if [[ -n $tiny ]]; then
    sizes=(--flags --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 64 --decoder-embed-dim 64 --max-tokens 2048)
    sentences=(--steps 2 --warm-up 1 --profile 1)
    documents=("${sentences[@]}")
else
    sizes=()
    sentences=(--steps 25 --warm-up 3 --profile 5 --time-limit 15 --precision fp16)
    documents=(--steps 10 --warm-up 2 --profile 2 --time-limit 15 --precision fp16)
fi
models=(--models stock softmax "softmax --compile" "reluformer --compile")
printf '\nThe tables are in sentences/report.md and documents/report.md.\n' >>"$out/report.md"
training Sentences iwslt14_de_en_30pct iwslt14_de_en sentences "${models[@]}" "${sentences[@]}" "${sizes[@]}" &
training Documents europarl7_small europarl7_en_de_2048 documents "${models[@]}" "${documents[@]}" "${sizes[@]}" &
wait
