#!/usr/bin/env bash
# IWSLT14 German-English -> data-bin/iwslt14_de_en, as in fairseq's recipe.
# Downloads to raw/ if missing: de-en.tgz.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus iwslt14_de_en "$@"
