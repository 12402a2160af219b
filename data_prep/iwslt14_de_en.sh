#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/corpus.sh" iwslt14_de_en "$@"
