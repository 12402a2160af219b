#!/usr/bin/env bash
# Item C, 3 minutes: kernels for Hopper GPUs. benchmarks/gpu/hopper.sh BUNDLE OUT [--tiny]
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
# OUT/hopper.json has all results. A job has a time limit, because a wrong barrier hangs.
start "Kernels for Hopper GPUs" 180 "$@"
options=(--budget 165 ${tiny:+--tiny})
if [[ -d $bundle/hopper_cache ]]; then
    cp -r "$bundle/hopper_cache" . # Triton writes to it
    options+=(--cache hopper_cache)
fi
step "Errors and times" "$python" "$root/benchmarks/gpu/hopper/measure.py" "$out" "${options[@]}" || true
