#!/usr/bin/env bash
# Item B, 10 minutes: the first full training. benchmarks/gpu/full_training.sh BUNDLE OUT [--tiny]
# Softmax and ReLUFormer with the papers' model (6+6 layers of 512) on 30% of IWSLT14, both at the same time on one GPU in
# bf16, until validation stops improving or the time is up; then BLEU of the official test set. scripts/run.sh does all.
# OUT/runs.tar.gz gets run.json, the logs and the translations.
source "$(dirname "${BASH_SOURCE[0]}")/item.sh"
start "The first full training" 580 "$@"

dataset=iwslt14_de_en
export PRECISION=bf16 DATA_BIN=data-bin/iwslt14_de_en_30pct
# 390 seconds of training have a tenth of the paper's 100,000 updates, so they warm up for fewer than its 4,000.
flags=(--warmup-updates 1000 --patience 8 --stop-time-hours 0.108 --log-interval 50)
if [[ -n $tiny ]]; then
    dataset=smoke
    export PRECISION=fp32 DATA_BIN=data-bin/smoke
    flags=(--stop-time-hours 0.0005)
fi
both='"$0" "$1" softmax "${@:2}" >&2 & softmax=$!
    "$0" "$1" reluformer "${@:2}" >&2 & reluformer=$!
    wait "$softmax"; status=$?; wait "$reluformer" && exit "$status"'
step "Two trainings on one GPU" bash -c "$both" "$root/scripts/run.sh" "$dataset" "${flags[@]}" || true
end=$((SECONDS + 15))
step "BLEU of the test set" "$python" -P -m relumt.cli table --runs runs --dataset "$dataset" || true
step "Validation loss, updates and tokens/s by epoch" grep -oE \
    '"(valid_loss|valid_num_updates|train_wps)": "[^"]*"' -r runs --include train.log || true
tar -czf "$out/runs.tar.gz" --exclude checkpoints --exclude '*.lock' runs
