#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/corpus.sh" wmt18_en_fi "$@"
