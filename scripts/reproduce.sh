#!/usr/bin/env bash
# Reproduce a table or figure of a paper, from corpus to Markdown:
#
#   scripts/reproduce.sh NAME [--preset paper|small|smoke] [options…] [-- fairseq-train flags…]
#
# `scripts/reproduce.sh --help` lists the names and options. `scripts/train.sh --help` explains the environment variables
# RUNS, CONFIGS, PRECISION, FORCE, RELUMT_KERNELS and PYTHON. SEED and DATA_BIN are refused, because a table may need
# several: give --seeds.
#
# Existing results are reused. The exit status is 1 if a run or benchmark failed, which leaves its cells of the table
# empty, and 2 if the request is invalid or existing runs have other settings.
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

help_of=reproduce
begin "$@"
arguments=("$@")
for i in "${!arguments[@]}"; do
    if [[ ${arguments[i]} == -- ]]; then
        arguments[i]=--flags # argparse would drop "--"
        break
    fi
done
exec "$python" -P -m relumt.cli reproduce "--root=$root" "--runs=${RUNS:-runs}" "${arguments[@]}"
