#!/usr/bin/env bash
# WMT18 Chinese-English -> data-bin/wmt18_zh_en, with newstest2017 and newstest2018.
# Downloads to raw/ if missing: News Commentary v13 and UN v1.0, 1.5 GB. The CWMT corpora must be requested.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
help_of=corpus
begin "$@"
relumt corpus wmt18_zh_en "$@"
