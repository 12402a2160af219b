#!/usr/bin/env bash
# Multi30k German-English -> data-bin/multi30k_de_en.
# Downloads to raw/ if missing: six texts.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus multi30k_de_en "$@"
