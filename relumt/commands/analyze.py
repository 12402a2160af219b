"""Measure what trained models do while they read a test set's references, and write it to DIR.

A model is a checkpoint or the folder of a finished run, which stands for its best checkpoint. DIR gets analysis.json,
plots, and report.html, which opens offline; maps-N.pt holds the maps of the N-th model's first sentences.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from relumt.atomic_output import write_text_atomically
from relumt.console import print_status, quiet_fairseq
from relumt.errors import UserError
from relumt.files import file_sha256, require_writable
from relumt.runs.analysis_record import ANALYSIS, SCHEMA

if TYPE_CHECKING:
    from relumt.analysis.attention_maps import Sentence
    from relumt.analysis.loaded_model import LoadedModel
    from relumt.metrics.alignment import Gold


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to look at, on what, and where to."""
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help="checkpoint_*.pt, or a run")
    parser.add_argument("--data", type=Path, help="data-bin of the models' vocabulary (default: the one of the runs)")
    parser.add_argument("--subset", default="test", help="which part of it (default: test)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for what is measured")
    parser.add_argument(
        "--alignments",
        type=Path,
        metavar="FILE",
        help="word alignments of the subset by hand (default: the data-bin's)",
    )
    parser.add_argument("--first-word", type=int, default=0, choices=[0, 1], help="its number there (default: 0)")
    parser.add_argument("--sentences", type=int, default=50, help="whose maps the report shows (default: 50)")
    parser.add_argument("--numbers-only", action="store_true", help="write analysis.json alone")
    parser.add_argument("--max-tokens", type=int, default=4096, help="in a batch (default: 4096)")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write."""
    quiet_fairseq()
    for name in ("max_tokens", "sentences"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} must be positive, not {getattr(arguments, name)}")
    require_writable(arguments.out)
    if not arguments.numbers_only:
        require_packages()
    analyses, maps = [], []
    for path, name in zip(arguments.checkpoints, names_of(arguments.checkpoints), strict=True):
        analysis, sentences = analyse(path, name, arguments)
        analyses.append(analysis)
        maps.append(sentences)
    result = {"schema": SCHEMA, "subset": arguments.subset, "checkpoints": analyses}
    write_text_atomically(arguments.out / ANALYSIS, json.dumps(result, indent=2) + "\n")
    print_status(str(arguments.out / ANALYSIS))
    if not arguments.numbers_only:
        draw(result, maps, arguments.out)


def require_packages() -> None:
    """Raise UserError where those are missing that plots and reports take, before anything is measured."""
    import relumt.analysis.plots
    import relumt.analysis.report  # noqa: F401


def draw(result: dict[str, Any], maps: list["list[Sentence]"], out: Path) -> None:
    """Write plots, the report and the maps; raises UserError where the packages for it are missing."""
    from relumt.analysis.attention_maps import save_maps
    from relumt.analysis.plots import plot_activations, plot_attention
    from relumt.analysis.report import write_report

    if any(analysis["activations"] for analysis in result["checkpoints"]):
        plot_activations(result["checkpoints"], out)
    plot_attention(result["checkpoints"], out)
    for number, sentences in enumerate(maps, start=1):
        save_maps(sentences, out / f"maps-{number}.pt")
    print_status(str(write_report(result, maps, out)))


def analyse(given: Path, name: str, arguments: argparse.Namespace) -> tuple[dict[str, Any], "list[Sentence]"]:
    """Everything about one checkpoint, to be called `name`, and its maps.

    Raises:
        UserError: there is none, nothing to look at it on, or not as many alignments as sentence pairs.
    """
    from relumt.analysis.alignment_collector import AlignmentCollector
    from relumt.analysis.attention_collector import AttentionCollector, NullRates
    from relumt.analysis.attention_maps import MapCollector
    from relumt.analysis.ffn_collector import FeedForwardCollector, learnt_activations
    from relumt.analysis.loaded_model import open_given
    from relumt.modules.hooks import named_attentions
    from relumt.runs.data_bin import open_data_bin
    from relumt.runs.environment import versions

    opened, data = open_given(given, arguments.data, arguments.cpu)
    path = opened.path
    if getattr(opened.model.decoder, "cross_self_attention", False):
        raise UserError(f"{path}: attends to source and target together (--cross-self-attention), which has no sites")
    if not named_attentions(opened.model):
        raise UserError(
            f"{path}: not of relumt's architectures, so that nothing of it can be measured; mechanism_transformer with "
            "the same flags loads a stock Transformer's weights (--finetune-from-model)"
        )
    pairs = opened.load(arguments.subset)
    alignments, gold = gold_of(opened, data, pairs, arguments)
    pad = opened.task.target_dictionary.pad()
    feedforward, attention = FeedForwardCollector(opened.model, pad), AttentionCollector(opened.model, pad)
    maps, nulls = MapCollector(opened.model, opened.task, arguments.sentences), NullRates(opened.model, pad)
    collectors = [feedforward, attention] if arguments.numbers_only else [feedforward, attention, maps]
    if gold is not None:
        aligned = AlignmentCollector(opened.model, opened.task, gold, open_data_bin(data).subwords)
        collectors.append(aligned)
    seen = read(opened, arguments.subset, arguments.max_tokens, collectors, str(path))
    if not seen:
        raise UserError(f"{data}: no pair of '{arguments.subset}' fits {path}'s positions")
    if seen > 1:
        shuffled = opened.shuffle_targets(arguments.subset)
        read(opened, shuffled, arguments.max_tokens, [nulls], f"{path}, targets shuffled")
    of_attention = attention.result()
    for module, rates in nulls.result().items():
        of_attention[module]["null_rate_shuffled"] = rates
    say_what_is_missing(path, of_attention)
    if gold is not None:
        for pair, links in sorted(aligned.beyond.items()):
            first = arguments.first_word if arguments.alignments else 0
            beyond = " ".join(f"{s + first}-{t + first}" for s, t in sorted(links))
            print_status(f"{alignments}: pair {pair + 1}: {beyond} lie beyond the sentence; left out")
        if aligned.unknown:
            print_status(
                f"{path}: {len(aligned.unknown)} pairs have subwords that no dictionary has; left out of the alignment"
            )
    return {
        "name": name,
        "path": str(path),
        "data": str(data),
        "sha256": file_sha256(path),
        "versions": versions(),
        "pairs": seen,
        "pairs_too_long": pairs - seen,
        "attention": of_attention,
        "alignment": None if gold is None else aligned.result(),
        "feedforward": feedforward.result(),
        "activations": learnt_activations(opened.model),
    }, maps.result()


def gold_of(
    opened: "LoadedModel", data: Path, pairs: int, arguments: argparse.Namespace
) -> tuple[Path, "list[Gold] | None"]:
    """The file of word alignments given, or the data-bin's own, and what it says; None where there is neither.

    The data-bin's are of sentences: they are left out where the model reads documents. They have its source's word
    first, which is the target of a model that translates the other way.

    Raises:
        UserError: it does not hold alignments, or not as many as there are `pairs`.
    """
    from relumt.metrics.alignment import read_alignments
    from relumt.runs.data_bin import open_data_bin

    own = data / "text" / f"{arguments.subset}.align"
    if arguments.alignments is None:
        gold = read_alignments(own, 0) if own.is_file() else []
        if gold and opened.task.cfg.source_lang == open_data_bin(data).target:
            gold = [of_pair.turned() for of_pair in gold]
        return own, gold if len(gold) == pairs else None
    gold = read_alignments(arguments.alignments, arguments.first_word, pairs)
    if len(gold) != pairs:
        raise UserError(f"{arguments.alignments}: {len(gold)} alignments for {pairs} pairs of {arguments.subset}")
    return arguments.alignments, gold


def read(opened: "LoadedModel", subset: str, max_tokens: int, collectors: list[Any], title: str) -> int:
    """Let the model read a subset, with the collectors listening; returns the number of pairs."""
    seen = 0
    console = Console(file=sys.stderr)
    for sample in track(opened.batches(subset, max_tokens), title, console=console, disable=not console.is_terminal):
        with ExitStack() as stack:
            for collector in collectors:
                stack.enter_context(collector.listening(sample))
            opened.decode(sample)
        seen += sample["nsentences"]
    return seen


def say_what_is_missing(path: Path, attention: dict[str, dict[str, Any] | None]) -> None:
    """Say which measures do not apply to a checkpoint's attentions, and why."""
    without = [name for name, measures in attention.items() if measures is None]
    if without:
        print_status(
            f"{path}: no sparsity, null rate, entropy, diversity, maps or alignment of {', '.join(without)}: such an "
            "attention has no weights; the rest is measured"
        )
    signed = [name for name, measures in attention.items() if measures and measures["entropy"] is None]
    if signed:
        print_status(
            f"{path}: no null rate, entropy, distances, shares or diversity of {', '.join(signed)}: weights can be "
            "negative"
        )


def names_of(given: Sequence[Path]) -> list[str]:
    """What to call checkpoints: MODEL/SEED of a run, with more of its path where others have the same; or a path."""
    longest = max(len(path.resolve().parts) for path in given)
    for parts in range(2, max(longest, 2) + 1):
        names = ["/".join(path.resolve().parts[-parts:]) if path.is_dir() else str(path) for path in given]
        if len(set(names)) == len(names):
            break
    return names
