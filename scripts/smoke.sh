#!/usr/bin/env bash
# Every script of scripts/tables/ with --preset smoke, in the folder smoke/: scripts/smoke.sh [TABLE…]
# Shows that the scripts work; the scores mean nothing. Exits with status 1 where one fails.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tables=("$@")
if (($# == 0)); then
    tables=("$root"/scripts/tables/*_*.sh)
    tables=("${tables[@]##*/}")
    tables=("${tables[@]%.sh}")
fi
mkdir -p smoke
cd smoke
failed=0
for table in "${tables[@]}"; do
    if "$root/scripts/tables/$table.sh" --preset smoke >"$table.md" 2>"$table.log"; then
        echo "$table: smoke/$table.md"
    else
        echo "$table: FAILED, smoke/$table.log ends in: $(tail -n 1 "$table.log")" >&2
        failed=1
    fi
done
exit "$failed"
