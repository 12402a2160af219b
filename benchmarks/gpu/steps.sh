#!/usr/bin/env bash
# Item A, 4 minutes: where the time of a training step goes. benchmarks/gpu/steps.sh BUNDLE OUT [--tiny]
# For the papers' model on sentences and on documents, for stock fairseq, softmax and ReLUFormer in fp16 and bf16: steps
# with new shapes, the same steps again, and what the GPU and the CPU do in a step. On documents also where PyTorch
# prefers other implementations of softmax attention to cuDNN's.
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
start "Where the time of a training step goes" 240 "$@"

training() {
    local title=$1 data=$2 config=$3 name=$4
    shift 4
    step "$title" "$python" "$root/benchmarks/training.py" "data-bin/$data" --config "$root/configs/datasets/$config.toml" \
        --repeats 1 --threads 1 --json "$out/$name.json" "$@" || true
}

if [[ -n $tiny ]]; then
    sizes=(--flags --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 64 --decoder-embed-dim 64 --max-tokens 2048)
    sentences=(--steps 2 --warm-up 1 --profile 1)
    documents=("${sentences[@]}")
else
    sizes=()
    sentences=(--steps 25 --warm-up 3 --profile 5 --time-limit 30 --precision fp16 bf16)
    documents=(--steps 12 --warm-up 2 --profile 3 --time-limit 40 --precision fp16 bf16)
fi
models=(--models stock softmax reluformer)
training Sentences iwslt14_de_en_30pct iwslt14_de_en sentences "${models[@]}" "${sentences[@]}" "${sizes[@]}"
training Documents europarl7_small europarl7_en_de_2048 documents "${models[@]}" "${documents[@]}" "${sizes[@]}"
export TORCH_CUDNN_SDPA_DEPRIORITIZED=1
training "Documents without cuDNN" europarl7_small europarl7_en_de_2048 documents_without_cudnn \
    --models stock softmax "${documents[@]}" "${sizes[@]}"
