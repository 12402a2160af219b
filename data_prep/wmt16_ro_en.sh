#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/corpus.sh" wmt16_ro_en "$@"
