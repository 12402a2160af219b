#!/usr/bin/env bash
# Item F, 3 minutes: the Inhibitor's forward kernels. benchmarks/gpu/inhibitor.sh BUNDLE OUT [--tiny]
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
# OUT/inhibitor.json has all results. Tables grow line by line, so that a run that is cut off keeps what it measured.
start "The Inhibitor in float32 and in pairs of float16" 180 "$@"
step "Errors and times" "$python" "$root/benchmarks/gpu/inhibitor.py" "$out" ${tiny:+--tiny} || true
