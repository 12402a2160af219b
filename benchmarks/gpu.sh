#!/usr/bin/env bash
# Measure what docs/kernels.md leaves open, on a machine with a GPU: benchmarks/gpu.sh OUT [DATA-BIN [DOCUMENTS]]
# Tests the kernels against float64, times them in the shapes that matter, tunes their launch configurations and, given
# data-bins of sentences and of documents, times whole training steps. Everything is written to OUT; a step that fails is
# reported and the others go on. PYTHON is the interpreter (default: .venv/bin/python).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
if (($# < 1 || $# > 3)); then
    echo "relumt: error: usage: benchmarks/gpu.sh OUT [DATA-BIN [DOCUMENTS]]" >&2
    exit 2
fi
out=$(mkdir -p "$1" && cd "$1" && pwd)
sentences=${2:+$(realpath "$2")}
documents=${3:+$(realpath "$3")}
cd "$root"
failed=0

# step NAME COMMAND…: run a command; its stdout goes to OUT/NAME.md, its stderr to OUT/NAME.log
step() {
    local name=$1
    shift
    if "$@" >"$out/$name.md" 2>"$out/$name.log"; then
        echo "$name: $out/$name.md"
    else
        echo "$name: FAILED, its last line is: $(cat "$out/$name.md" "$out/$name.log" | tail -n 1)" >&2
        failed=1
    fi
}

kernels() {
    local name=$1
    shift
    step "$name" "$python" benchmarks/kernel_speed.py --json "$out/$name.json" "$@"
}

training() {
    local name=$1 data=$2 dataset=$3
    shift 3
    step "$name" "$python" benchmarks/training.py "$data" --config "configs/datasets/$dataset.toml" \
        --json "$out/$name.json" "$@"
}

step tests "$python" -m pytest -q -m "gpu or not slow" tests/attention/test_gpu.py tests/attention/test_pointwise_triton.py \
    tests/attention/test_inhibitor_triton.py tests/attention/test_training_curve.py
kernels dense
kernels causal --causal --lengths 2048 4096
kernels wide --head-dim 128 --lengths 2048 4096
kernels padded --padding 0.25 --lengths 1024 2048
kernels sentences --batch 64 --heads 4 --lengths 64 128 --padding 0.25 --causal --dropout 0.1
kernels inhibitor --batch 1 --lengths 512 2048 --dtype float32
kernels inhibitor_half --batch 1 --lengths 512 2048
if [[ -n $sentences ]]; then
    training training_sentences "$sentences" iwslt14_de_en
fi
if [[ -n $documents ]]; then
    training training_documents "$documents" europarl7_en_de_2048
fi
step tune_long "$python" benchmarks/tune_launch_configs.py
step tune_short "$python" benchmarks/tune_launch_configs.py --batch 64 --heads 4 --length 64 --causal
step tune_dropout "$python" benchmarks/tune_launch_configs.py --batch 64 --heads 4 --length 128 --causal --dropout 0.1 \
    --row-stats
exit "$failed"
