#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/corpus.sh" multi30k_de_en "$@"
