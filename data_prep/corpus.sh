#!/usr/bin/env bash
# A corpus of the papers -> fairseq data-bin, by default data-bin/CORPUS.
#
#   data_prep/corpus.sh CORPUS [--raw DIR] [--out DIR]
#
# data_prep/CORPUS.sh does the same. Published files that are missing in raw/ are downloaded.
set -euo pipefail
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus "$@"
