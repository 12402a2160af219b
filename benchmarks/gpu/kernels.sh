#!/usr/bin/env bash
# Item E, 20 minutes: are the kernels right on this GPU, and how fast? benchmarks/gpu/kernels.sh BUNDLE OUT [--tiny]
# Needs no data: with relumt's environment, BUNDLE is any folder. OUT/NAME.json has the results of each table.
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
start "All kernels" 1200 "$@"

systems=(softmax "softmax, flash" "softmax, cuDNN" "softmax, efficient" relu "relu, with row stats" "relu, unfused"
    relu2 "relu_l1, power 8" sigmoid entmax15 inhibitor "inhibitor, cdist")
kernels() {
    local title=$1 json=$out/$2.json
    shift 2
    step "$title" "$python" "$root/benchmarks/attention.py" --systems "${systems[@]}" --rounds 5 --batch 16 \
        --dtype bfloat16 --json "$json" "$@" ${tiny:+--rounds 1 --batch 1 --lengths 8} || true
}

[[ -n $tiny ]] || step "Clocks" nvidia-smi -q -d CLOCK,POWER,TEMPERATURE || true
step "Doctor" "$python" -P -m relumt.cli doctor || true
if [[ -z $tiny && -d $root/tests ]]; then
    step "Comparison with float64" "$python" -m pytest -q --rootdir "$root" -m "gpu or not slow" \
        "$root"/tests/attention/test_{gpu,pointwise_triton,inhibitor_triton}.py || true
fi
kernels "Long" long --lengths 128 512 1024 2048 4096
kernels "Short" short --batch 128 --lengths 32 64
kernels "Dropout" dropout --dropout 0.1 --lengths 512 2048
kernels "Heads of 128" wide --head-dim 128 --lengths 512 2048
kernels "float16" float16 --dtype float16 --lengths 512 2048
kernels "float32" float32 --dtype float32 --lengths 512 2048
kernels "Causal" causal --causal --lengths 2048 4096
kernels "Causal, heads of 128" wide_causal --causal --head-dim 128 --lengths 2048
kernels "Padding" padded --padding 0.25 --lengths 1024 2048
kernels "Sentences" sentences --batch 64 --heads 4 --lengths 64 128 --padding 0.25 --causal --dropout 0.1
kernels "Inhibitor" inhibitor --batch 1 --lengths 512 2048 --dtype float32
kernels "Inhibitor, bfloat16" inhibitor_half --batch 1 --lengths 512 2048
