"""Find sentence pairs that do not translate each other, by a model's null attention ([RL] §5.2), and leave them out.

Source and target are texts of a sentence a line, tokenised as the model's training text was before BPE, gzipped or
not. OUT.scores gets a line a pair: null rate of cross-attention, cross-entropy a token; with --threshold or --keep, the
pairs kept are written to OUT.SRC and OUT.TGT. Only mechanisms with null rows (ReLA, ReLUFormer …) can rank by them.
"""

import argparse
import math
import sys
from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import track

from relumt.atomic_output import atomic_file
from relumt.console import print_status, quiet_fairseq
from relumt.errors import UserError
from relumt.prep.bitext import check_line_counts
from relumt.text_files import normalize_line, open_text, read_lines, write_lines

if TYPE_CHECKING:
    from relumt.analysis.loaded_model import LoadedModel
    from relumt.attention import Mechanism

MEASURES = ("null_rate", "cross_entropy")
AT_ONCE = 1000  # lines segmented together


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, on what, and what to keep."""
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint_*.pt, or a trained run's folder")
    parser.add_argument(
        "--data", type=Path, help="data-bin with its dictionaries and BPE (default: the one of the run)"
    )
    parser.add_argument("--src", type=Path, required=True, metavar="F", help="source text")
    parser.add_argument("--tgt", type=Path, required=True, metavar="F", help="target text")
    parser.add_argument("--out", type=Path, required=True, help="prefix of what is written")
    parser.add_argument("--by", default=MEASURES[0], choices=MEASURES, help="rank by (default: null_rate)")
    parser.add_argument("--threshold", type=float, metavar="X", help="keep pairs of at most X")
    parser.add_argument("--keep", type=float, metavar="Q", help="keep this share of the pairs, those of the least")
    parser.add_argument("--max-tokens", type=int, default=4096, help="in a batch (default: 4096)")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")


def run(arguments: argparse.Namespace) -> None:
    """Score, and write what is kept."""
    check(arguments)
    quiet_fairseq()
    from relumt.analysis.loaded_model import open_given
    from relumt.analysis.pair_scoring import scored

    lines = count(arguments.src, arguments.tgt)
    opened, data = open_given(arguments.checkpoint, arguments.data, arguments.cpu)
    refuse_unusable(opened, arguments)
    scores = scored(opened, encoded(opened, data, arguments.src, arguments.tgt), arguments.max_tokens)
    wanted = arguments.threshold is not None or arguments.keep is not None
    ranks, tied, too_long = array("d"), array("d"), 0
    console = Console(file=sys.stderr)
    with atomic_file(Path(f"{arguments.out}.scores")) as unfinished, open_text(unfinished, "w") as file:
        for score in track(scores, str(opened.path), lines, console=console, disable=not console.is_terminal):
            rank = score.rank(arguments.by)
            too_long += rank is None
            if wanted:
                for column, value in zip((ranks, tied), rank or (math.nan, math.nan), strict=True):
                    column.append(value)
            file.write(f"{as_text(score.null_rate)}\t{as_text(score.cross_entropy)}\n")
    print_status(
        f"{arguments.out}.scores: {lines} pairs" + (f", {too_long} too long for the model" if too_long else "")
    )
    if wanted:
        write_kept(np.frombuffer(ranks), np.frombuffer(tied), arguments, opened)


def check(arguments: argparse.Namespace) -> None:
    """Raise UserError for options that cannot be."""
    if arguments.threshold is not None and arguments.keep is not None:
        raise UserError("--threshold and --keep both say what to keep; give one of them")
    if arguments.threshold is not None and math.isnan(arguments.threshold):
        raise UserError("--threshold must be a number, not nan")
    if arguments.src.resolve() == arguments.tgt.resolve():
        raise UserError(f"{arguments.src}: is source and target; give two texts")
    if arguments.keep is not None and not 0 < arguments.keep <= 1:
        raise UserError(f"--keep must be above 0 and at most 1, not {arguments.keep:g}")
    if arguments.max_tokens < 1:
        raise UserError(f"--max-tokens must be positive, not {arguments.max_tokens}")


def refuse_unusable(opened: "LoadedModel", arguments: argparse.Namespace) -> None:
    """Raise UserError for a model that has no null rows to rank by, and for outputs in the inputs' place."""
    from relumt.modules.hooks import named_attentions

    cross = [attention.mechanism for attention in named_attentions(opened.model).values() if attention.site == "cross"]
    if arguments.by == "null_rate" and not any(map(can_be_null, cross)):
        raise UserError(f"{opened.path}: its cross-attention has no null rows to count; rank --by cross_entropy")
    of_model = opened.task.cfg.source_lang, opened.task.cfg.target_lang
    for path, language, other in zip((arguments.src, arguments.tgt), of_model, reversed(of_model), strict=True):
        if path.name.removesuffix(".gz").endswith(f".{other}"):
            raise UserError(f"{path}: {language} is wanted there, by its name it is {other}; exchange the texts")
    for path in outputs(opened, arguments):
        if path.resolve() in {arguments.src.resolve(), arguments.tgt.resolve()}:
            raise UserError(f"{path}: is the text to filter; name another --out")


def can_be_null(mechanism: "Mechanism") -> bool:
    """Whether a row of a mechanism's weights can be nothing, and be seen to be."""
    return mechanism.has_weights and not mechanism.has_negative_weights and not mechanism.weights_sum_to_one


def outputs(opened: "LoadedModel", arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Where the pairs kept go."""
    languages = opened.task.cfg.source_lang, opened.task.cfg.target_lang
    source, target = (Path(f"{arguments.out}.{language}") for language in languages)
    return source, target


def count(source: Path, target: Path) -> int:
    """Number of pairs; raises UserError for texts that are no pair."""
    texts = source, target
    counts = [sum(1 for _ in read_lines(path)) for path in texts]
    check_line_counts(texts, counts, lambda side: read_lines(texts[side]))
    return counts[0]


def encoded(opened: "LoadedModel", data: Path, source: Path, target: Path) -> Iterator[tuple]:
    """The pairs of two texts as tensors of tokens, segmented as the data-bin is."""
    from relumt.prep.bpe import BPE_METHODS
    from relumt.runs.data_bin import open_data_bin

    kind = open_data_bin(data).subwords
    segment = BPE_METHODS[kind].load(data) if kind in BPE_METHODS else list
    dictionaries = opened.task.source_dictionary, opened.task.target_dictionary
    sides = [map(normalize_line, read_lines(path)) for path in (source, target)]
    while block := [list(islice(side, AT_ONCE)) for side in sides]:
        if not block[0]:
            return
        tokens = [
            [dictionary.encode_line(line, add_if_not_exist=False).long() for line in segment(lines)]
            for lines, dictionary in zip(block, dictionaries, strict=True)
        ]
        yield from zip(*tokens, strict=True)


def write_kept(ranks: np.ndarray, tied: np.ndarray, arguments: argparse.Namespace, opened: "LoadedModel") -> None:
    """Write the pairs that --threshold or --keep leaves, in their order; those that are too long are left out.

    ranks: of the pairs, NaN of those that are too long. tied: what --keep takes pairs of equal rank by.
    """
    there = ranks[~np.isnan(ranks)]
    chosen = ranks <= arguments.threshold if arguments.keep is None else np.zeros(len(ranks), dtype=bool)
    if arguments.keep is not None:
        order = np.lexsort((tied, ranks))  # NaN comes last
        chosen[order[: round(arguments.keep * len(there))]] = True
    for path, output in zip((arguments.src, arguments.tgt), outputs(opened, arguments), strict=True):
        lines = map(normalize_line, read_lines(path))
        with atomic_file(output) as unfinished:
            write_lines(unfinished, (line for line, keep in zip(lines, chosen, strict=True) if keep))
    if len(there) > 1 and there.min() == there.max():
        print_status(f"every pair has the same {arguments.by}, {there[0]:g}, which ranks none before another")
    kept = f"{np.count_nonzero(chosen)} of {len(ranks)} pairs by {arguments.by}"
    print_status(f"{' and '.join(map(str, outputs(opened, arguments)))}: {kept}")


def as_text(value: float | None) -> str:
    """A score, "nan" for none."""
    return "nan" if value is None else f"{value:.6f}"
