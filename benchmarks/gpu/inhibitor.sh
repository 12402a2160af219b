#!/usr/bin/env bash
# Item F, 3 minutes: the Inhibitor's forward kernels. benchmarks/gpu/inhibitor.sh BUNDLE OUT [--tiny]
# The goal is 430 µs for the forward pass of a dense sentence of 2,048 tokens on an H100; float32 took 700. A kernel that
# disagrees with float64 at its first call is not used; the log says so. OUT/NAME.json has the results of each table.
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
start "The Inhibitor in float32 and in pairs of float16" 180 "$@"

times() {
    local title=$1 json=$out/$2.json
    shift 2
    step "$title" "$python" "$root/benchmarks/attention.py" --systems inhibitor "inhibitor, fp16 pairs" \
        --baseline inhibitor --rounds 7 --dtype bfloat16 --json "$json" "$@" ${tiny:+--rounds 1 --lengths 8} || true
}

if [[ -z $tiny && -d $root/tests ]]; then
    step "Comparison with float64" "$python" -m pytest -q --rootdir "$root" -m "gpu or not slow" \
        "$root/tests/attention/test_inhibitor_triton.py" || true
fi
times "Dense" dense --lengths 512 2048
times "Causal" causal --causal --lengths 2048
times "Padding" padded --batch 2 --padding 0.25 --lengths 1024
times "Heads of 128" wide --head-dim 128 --lengths 2048
