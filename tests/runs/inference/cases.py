"""A tiny data-bin of text without subwords, and untrained models of it."""

import io
import json
from pathlib import Path

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.generate import _main as generate

from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from tests.plugin.model.build import dictionary, sample, write_checkpoint, write_data_bin

LENGTHS = [(7, 5), (3, 8), (2, 2), (7, 3), (5, 5), (9, 6)]
PREPARATION = {
    "source": "de",
    "target": "en",
    "bpe": "none",
    "tokenized": False,
    "lowercased": False,
    "plain_references": False,
}


def write_text_data_bin(folder: Path) -> Path:
    """Write a data-bin with the sentences of `texts` as its test set."""
    write_data_bin(folder, LENGTHS)
    (folder / "prepare.json").write_text(json.dumps(PREPARATION), encoding="utf-8")
    return folder


def texts() -> list[str]:
    """Return the source sentences of the data-bin."""
    batch, symbols = sample(LENGTHS), dictionary()
    rows = sorted(zip(batch["id"].tolist(), batch["net_input"]["src_tokens"], strict=True), key=lambda row: row[0])
    return [" ".join(symbols[i] for i in row.tolist() if i not in (symbols.pad(), symbols.eos())) for _, row in rows]


def write_lively_checkpoint(folder: Path, *flags: str) -> Path:
    """Write a checkpoint whose translations depend on the source and end at different steps, without training."""
    torch.manual_seed(1)
    path = write_checkpoint(folder, *flags)
    checkpoint = load_checkpoint_safely(path)
    weights = checkpoint["model"]
    for name, weight in weights.items():
        if weight.dim() == 2 and "embed" not in name:
            weight.mul_(2)
    weights["decoder.output_projection.weight"][dictionary().eos()] += 0.5
    weights["decoder.layers.1.final_layer_norm.bias"].fill_(0.5)
    torch.save(checkpoint, path)
    return path


def fairseq_generate(path: Path, data: Path, *flags: str) -> dict[str, list[tuple[float, str]]]:
    """Translate the test set with fairseq-generate; return its lines by kind and number: "D-0" → (score, text)…"""
    arguments = [str(data), "--path", str(path), "--batch-size", "4", "--required-batch-size-multiple", "1", "--cpu"]
    parser = options.get_generation_parser()
    args = options.parse_args_and_arch(parser, [*arguments, "-s", "de", "-t", "en", *flags])
    output = io.StringIO()
    generate(convert_namespace_to_omegaconf(args), output)
    found: dict[str, list[tuple[float, str]]] = {}
    for line in output.getvalue().splitlines():
        kind, *rest = line.split("\t")
        if kind.startswith("D-"):
            found.setdefault(kind, []).append((float(rest[0]), rest[1]))
        elif kind.startswith("A-"):
            found.setdefault(kind, []).append((0.0, rest[0]))
    return found
