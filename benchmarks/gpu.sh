#!/usr/bin/env bash
# Measure what docs/kernels.md leaves open, on a machine with a GPU: benchmarks/gpu.sh OUT [DATA-BIN [DOCUMENTS]]
# Runs `relumt doctor`, tests the kernels against float64 and times all kinds of calls; given data-bins of sentences and of
# documents, it times whole training steps. OUT/report.md collects all results: attach it to an issue. A step that fails
# is reported there, and the others go on. Called again with the same OUT, it runs only the steps that failed, were not
# reached or have another command. PYTHON is the interpreter (default: .venv/bin/python).
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../scripts/common.sh"
if (($# < 1 || $# > 3)) || [[ $1 == -* ]]; then
    fail 2 "usage: benchmarks/gpu.sh OUT [DATA-BIN [DOCUMENTS]]"
fi
for data in "${@:2}"; do
    [[ -d $data ]] || fail 2 "$data: no such folder; name a data-bin"
done
gpu=$("$python" -P -c 'import torch; print(torch.cuda.is_available())' 2>/dev/null) ||
    fail 2 "$python cannot import torch; run make install, or set PYTHON to a Python with relumt's requirements"
[[ $gpu == True ]] || fail 2 "benchmarks/gpu.sh needs a GPU, but torch sees none; run relumt doctor to find out why"

out=$(mkdir -p "$1" 2>/dev/null && cd "$1" && pwd) && : 2>/dev/null >>"$out/report.md" ||
    fail 2 "$1: cannot be created or written to; name another folder"
sentences=${2:+$(realpath "$2")}
documents=${3:+$(realpath "$3")}
report=$out/report.md
cd "$root"
failed=0
sections=()
commit=$(git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown)

versions() {
    echo "commit: $commit"
    echo "RELUMT_KERNELS: ${RELUMT_KERNELS:-not set}"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    "$python" -P -c 'import torch, triton; print(f"torch: {torch.__version__}\nTriton: {triton.__version__}")'
}

if compgen -G "$out/*.done" >/dev/null; then
    [[ $commit != *-dirty && $commit != unknown && -f $out/versions.done && $(versions) == "$(<"$out/versions.stdout")" ]] ||
        fail 2 "$1: has results of another commit, GPU or version, or of uncommitted changes; name another folder"
fi

# tables NAME COMMAND…: run a step whose stdout is Markdown
tables() {
    run_step cat "$@"
}

# text NAME COMMAND…: run a step whose stdout is plain text
text() {
    run_step quote "$@"
}

# run_step SHOW NAME COMMAND…: run a step's command, unless an earlier call of this script completed it. SHOW prints the
# file with its stdout, OUT/NAME.stdout; OUT/NAME.md becomes its section of the report, OUT/NAME.log gets stderr.
run_step() {
    local show=$1 name=$2 status=0
    shift 2
    sections+=("$out/$name.md")
    if [[ ! -f $out/$name.done || $(<"$out/$name.done") != "$*" ]]; then
        rm -f "$out/$name.done" "$out/$name.json"
        "$@" >"$out/$name.stdout" 2>"$out/$name.log" || status=$?
        section "$show" "$name" "$status" "$*" >"$out/$name.md"
        ((status)) || printf '%s' "$*" >"$out/$name.done"
    fi
    { printf '# relumt on a GPU\n' && cat "${sections[@]}"; } >"$report"
    if ((status)); then
        failed=1
        echo "$name: FAILED with status $status, see the end of $out/$name.log" >&2
    else
        echo "$name: $out/$name.md"
    fi
}

# section SHOW NAME STATUS COMMAND: print a step's section of the report
section() {
    printf '\n## %s\n\n`%s`\n\n' "$2" "$4"
    "$1" "$out/$2.stdout"
    (($3 == 0)) || { printf '\n**Failed with status %s.** Its messages end with:\n\n' "$3" && quote "$out/$2.log"; }
}

# quote FILE: print the last lines of a file as a block of text
quote() {
    echo '```' && tail -n 200 "$1" && echo '```'
}

kernels() {
    local name=$1
    shift
    tables "$name" "$python" benchmarks/attention.py --systems "${systems[@]}" --rounds 5 --batch 16 --dtype bfloat16 \
        --json "$out/$name.json" "$@"
}
systems=(softmax "softmax, flash" "softmax, cuDNN" "softmax, efficient" relu "relu, with row stats" "relu, unfused"
    relu2 "relu_l1, power 8" sigmoid entmax15 inhibitor "inhibitor, cdist")

# training NAME DATA DATASET: time training steps
training() {
    tables "$1" "$python" benchmarks/training.py "$2" --config "configs/datasets/$3.toml" --repeats 1 \
        --json "$out/$1.json"
}

clocks() {
    date -u +%Y-%m-%dT%H:%M:%SZ
    local gpu=index,name,driver_version,memory.total,power.limit,temperature.gpu,persistence_mode
    nvidia-smi --query-gpu=$gpu,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem --format=csv
}

text versions versions
text clocks clocks
text doctor relumt doctor
text tests "$python" -m pytest -q -m "gpu or not slow" tests/attention/test_gpu.py \
    tests/attention/test_pointwise_triton.py tests/attention/test_inhibitor_triton.py
kernels long --lengths 128 512 1024 2048 4096
kernels short --batch 128 --lengths 32 64
kernels dropout --dropout 0.1 --lengths 512 2048
kernels wide --head-dim 128 --lengths 512 2048
kernels float16 --dtype float16 --lengths 512 2048
kernels float32 --dtype float32 --lengths 512 2048
kernels causal --causal --lengths 2048 4096
kernels wide_causal --causal --head-dim 128 --lengths 2048
kernels padded --padding 0.25 --lengths 1024 2048
kernels sentences --batch 64 --heads 4 --lengths 64 128 --padding 0.25 --causal --dropout 0.1
kernels inhibitor --batch 1 --lengths 512 2048 --dtype float32
kernels inhibitor_half --batch 1 --lengths 512 2048
kernels inhibitor_padded --batch 4 --lengths 512 --padding 0.25 --causal --dropout 0.1 --dtype float32
if [[ -n $sentences ]]; then
    training training_sentences "$sentences" iwslt14_de_en
fi
if [[ -n $documents ]]; then
    training training_documents "$documents" europarl7_en_de_2048
fi
text clocks_at_the_end clocks
echo "all results: $report"
exit "$failed"
