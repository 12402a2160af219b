#!/usr/bin/env bash
# Item D, 10 minutes, and again as long: many seeds. benchmarks/gpu/many_seeds.sh BUNDLE OUT [--tiny]
# The comparison of docs/gap-plan.md on Multi30k with ten seeds of each model, ten trainings at a time on one GPU. RUNS
# names a folder for the runs: with the same one, a second call continues the first.
# OUT/runs.tar.gz gets run.json, the logs and the translations.
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
runs=$(realpath -m "${RUNS:-/nonexistent}")
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
step "Training and translation" "$python" -P -m relumt.cli grid gap --preset "$preset" "${grid[@]}" || true
end=$((SECONDS + 15))
step "Scores" "$python" -P -m relumt.cli table gap --preset "$preset" --runs "$runs" || true
tar -czf "$out/runs.tar.gz" -C "$(dirname "$runs")" --exclude checkpoints --exclude '*.lock' "$(basename "$runs")"
