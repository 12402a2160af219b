#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/corpus.sh" europarl7_en_de "$@"
