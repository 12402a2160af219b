#!/usr/bin/env bash
# Item D, 10 minutes, and again as long: many seeds. benchmarks/gpu/many_seeds.sh BUNDLE OUT [--tiny]
# The comparison of docs/gap-plan.md on Multi30k with ten seeds of each model, ten trainings at a time on one GPU.
#
#   RUNS       folder for the runs: with the same one, a second call continues the first
#   TABLE      gap_iwslt14: 30% of IWSLT14 instead
#   COMPILE    1: train with --compile all models that can
#   HELD_OUT   plain source text, a sentence per line, that all models translate when all are trained
#
# OUT/runs.tar.gz gets run.json, the logs and the translations (held_out.txt in the folder of a run).
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
runs=$(realpath -m "${RUNS:-/nonexistent}")
held_out=${HELD_OUT:+$(realpath "$HELD_OUT")}
table=${TABLE:-gap}
start "Many seeds" 575 "$@"
[[ -n ${RUNS:-} ]] || runs=$work/runs

grid=(--runs "$runs" --root "$root")
export PRECISION=bf16
if [[ -n $tiny ]]; then
    export PRECISION=fp32
    preset=smoke
    grid+=(--seeds 1 2 --jobs 2)
else
    preset=small
    grid+=(--seeds {1..10} --jobs-per-gpu 10)
fi
[[ -z ${COMPILE:-} ]] || grid+=(--only softmax softmax_qk_norm relu_l1_p8_qk_norm relu_l1_p8_qk_log_n --flags --compile)
if step "Training and translation" "$python" -P -m relumt.cli grid "$table" --preset "$preset" "${grid[@]}" &&
    [[ -n $held_out ]]; then
    translate="\"$python\" -P -m relumt.cli translate \"\$0\" <\"$held_out\" >\"\$0/held_out.txt\""
    step "Held-out text" xargs -P 10 -n 1 bash -c "$translate" < <(printf '%s\n' "$runs"/*/*/*/) || true
fi
end=$((SECONDS + 15))
step "Scores" "$python" -P -m relumt.cli table "$table" --preset "$preset" --runs "$runs" || true
tar -czf "$out/runs.tar.gz" -C "$(dirname "$runs")" --exclude checkpoints --exclude '*.lock' "$(basename "$runs")"
