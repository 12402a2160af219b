#!/usr/bin/env bash
# Reproduce every table and figure with --preset smoke, in the folder smoke/: scripts/smoke.sh [NAME…]
# This shows that the code works; the scores mean nothing. The exit status is 1 if one fails.
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/common.sh"

begin "$@"
names=$("$python" -P -c 'from relumt.papers import TABLES; print(*TABLES, sep="\n")') ||
    fail 1 "$python cannot list the tables; its messages are above"
mapfile -t tables <<<"$names"
for table in "$@"; do
    [[ " ${tables[*]} " == *" $table "* ]] || fail 2 "no table '$table'; known: ${tables[*]}"
done
(($# == 0)) || tables=("$@")
for variable in CONFIGS RELUMT_CONCRETE_PYTHON; do # paths seen from this folder
    [[ ! -e ${!variable:-} ]] || export "$variable=$(realpath -s "${!variable}")"
done
mkdir -p smoke
cd smoke
failed=0
for table in "${tables[@]}"; do
    if [[ $table == inhibitor_table3 && -z ${RELUMT_CONCRETE_PYTHON:-} ]]; then
        echo "$table: skipped, because RELUMT_CONCRETE_PYTHON is not set (docs/results/inhibitor_tables.md)"
        continue
    fi
    if "$root/scripts/reproduce.sh" "$table" --preset smoke >"$table.md" 2>"$table.log"; then
        echo "$table: smoke/$table.md"
    else
        echo "$table: FAILED, smoke/$table.log ends in: $(tail -n 1 "$table.log")" >&2
        failed=1
    fi
done
exit "$failed"
