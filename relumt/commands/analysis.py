"""The commands that measure what trained models do."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from relumt.errors import UserError, print_status
from relumt.files import require_writable
from relumt.installation import prepare_fairseq_import
from relumt.process import finite_number, positive_integer, share

if TYPE_CHECKING:
    from relumt.analysis.attention_maps import SentenceMaps
    from relumt.analysis.measure import AnalysisConfig
    from relumt.analysis.record import AnalysisFile
    from relumt.runs.run_config import RunConfig

MODEL_HELP = "a checkpoint, or the folder of a trained run for its scored (else best) checkpoint"


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that loads a model."""
    parser.add_argument("--data", type=Path, help="data-bin with the model's dictionaries (default: that of the run)")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def add_analyze_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments; `dest` names the field of `AnalysisConfig`."""
    add = parser.add_argument
    add_common_arguments(parser)
    add("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help=MODEL_HELP)
    add("--subset", default="test", help="subset of the data-bin (default: test)")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    alignments_help = "gold word alignments of the subset (default: those of the data-bin, if any)"
    add("--alignments", type=Path, metavar="FILE", help=alignments_help)
    first_help = "number of the first word in FILE (default: 0)"
    add("--first-word", type=int, default=0, choices=[0, 1], help=first_help)
    kept_help = "sentence pairs whose attention maps are kept (default: 50)"
    add("--sentences", dest="num_maps", type=positive_integer, default=50, metavar="N", help=kept_help)
    own_help = "also keep the maps of the models' own translations of these sentences, by beam search"
    add("--own-translations", dest="maps_own_translations", action="store_true", help=own_help)
    units_help = "measure the attention of subwords, or merge their weights to those of words (default: subwords)"
    add("--units", dest="unit", default="subwords", choices=["subwords", "words"], help=units_help)
    add("--numbers-only", action="store_true", help="write nothing but analysis.json")
    add("--max-tokens", type=positive_integer, default=4096, help="tokens in a batch (default: 4096)")


def analyze(arguments: argparse.Namespace) -> None:
    """Measure attention and feed-forward layers of trained models on a test set, and write the results to DIR.

    The models read the reference translations (forced decoding). DIR receives analysis.json, plots, report.html (opens
    offline), and maps-N.pt with the attention maps of the N-th model on the first sentences.
    """
    require_writable(arguments.out)
    prepare_fairseq_import()
    from relumt.analysis.measure import AnalysisConfig
    from relumt.runs.inference.loaded_model import require_model

    for path in arguments.checkpoints:  # before the first is measured, which takes minutes
        require_model(path)
    if not arguments.numbers_only:
        from relumt.analysis.report import write_plots_and_report  # fails early if a package is missing
        from relumt.corpora.parallel import progress_step
    config = AnalysisConfig(**{field.name: getattr(arguments, field.name) for field in fields(AnalysisConfig)})
    if arguments.numbers_only:
        config = replace(config, num_maps=0, maps_own_translations=False)
    analysis, maps = write_numbers(arguments.checkpoints, arguments.out, config)
    if arguments.numbers_only:
        print_status("next: repeat the command without --numbers-only for plots and a report with attention maps")
        return
    with progress_step("plots and report"):
        report = write_plots_and_report(analysis, maps, arguments.out)
    print_status(f"{report}: figures, and attention maps of {len({m.index for m in maps[0]})} sentence pairs")
    print_status('next: open it in a browser; relumt attend RUN "SENTENCE" shows the attention of your own sentence')


def write_numbers(
    checkpoints: Sequence[Path], out: Path, config: "AnalysisConfig"
) -> tuple["AnalysisFile", "list[list[SentenceMaps]]"]:
    """Measure checkpoints, write analysis.json to the folder `out`, and return its content and the attention maps."""
    from relumt.analysis.measure import measure_checkpoint
    from relumt.analysis.record import ANALYSIS, AnalysisFile, write_analysis

    names = short_names(checkpoints)
    print_status(f"measuring {', '.join(names)} on '{config.subset}'")
    measured = [measure_checkpoint(path, name, config) for path, name in zip(checkpoints, names, strict=True)]
    analysis = AnalysisFile(config.subset, [checkpoint for checkpoint, _ in measured])
    write_analysis(analysis, out / ANALYSIS)
    pairs = " and ".join(str(number) for number in sorted({c.num_pairs for c in analysis.checkpoints}))
    print_status(f"{out / ANALYSIS}: measures of {', '.join(names)} on {pairs} sentence pairs of '{config.subset}'")
    return analysis, [maps for _, maps in measured]


def analyze_run(config: "RunConfig", data_bin: Path | None) -> None:
    """Write a run's analysis.json unless it is up to date; `data_bin` is None for the one of training."""
    from relumt.analysis.scored_analysis import needs_analysis

    if needs_analysis(config):
        prepare_fairseq_import()
        from relumt.analysis.measure import AnalysisConfig

        write_numbers([config.folder], config.folder, AnalysisConfig(data_bin, "test"))
        print_status("next: relumt table")


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return a label for each path: the last parts of the run's folder, as few as are unambiguous, or the path."""
    from relumt.runs.record import CHECKPOINTS

    runs = [path.parent.parent if path.parent.name == CHECKPOINTS else path for path in paths]
    parts = [Path(os.path.realpath(run)).parts for run in runs]
    for num_parts in range(2, max(map(len, parts)) + 1):
        tails = ["/".join(own[-num_parts:]) for own in parts]
        names = [tail if run.is_dir() else str(run) for run, tail in zip(runs, tails, strict=True)]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def add_attend_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add_common_arguments(parser)
    add("checkpoint", type=Path, metavar="RUN", help=MODEL_HELP)
    add("sentences", nargs="+", metavar="SENTENCE", help="sentence in the source language; together, a document")
    add("--out", type=Path, default=Path("attend"), metavar="DIR", help="default: attend")
    add("--beam", type=positive_integer, help="size of the beam (default: as the run was evaluated)")
    add("--tokenized", action="store_true", help="the sentences consist of Moses tokens")


def attend(arguments: argparse.Namespace) -> None:
    """Translate sentences with a trained model, and write what its attention does: an HTML page that opens offline.

    DIR receives attend.html, an explorer of the maps of encoder, decoder and cross-attention while the model reads a
    sentence and its own translation, and maps.pt with the same maps. Sentences are plain text; they are tokenized and
    split into subwords like the model's training text.
    """
    require_writable(arguments.out)
    prepare_fairseq_import()
    from relumt.analysis.attention_maps import map_pairs, save_maps
    from relumt.analysis.measure import require_attentions, require_weights
    from relumt.analysis.report import write_explorer  # fails early if a package is missing
    from relumt.runs.inference.translator import load

    translator = load(arguments.checkpoint, arguments.data, arguments.cpu, arguments.tokenized)
    require_attentions(translator.loaded)
    require_weights(translator.loaded)
    (translations,) = translator.translate_documents([arguments.sentences], arguments.beam)
    sources, targets = ([getattr(x, side) for x in translations] for side in ("source", "target"))
    maps = map_pairs(translator.loaded, sources, targets, range(len(sources)))
    save_maps(maps, arguments.out / "maps.pt")
    page = arguments.out / "attend.html"
    write_explorer(str(arguments.checkpoint), translator.loaded, maps, page)
    for translation in translations:
        print(f"{translation.text}\t{translation.score:.3f}")
    print_status(f"wrote {page}")


def add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add_common_arguments(parser)
    add("--checkpoint", type=Path, required=True, help=MODEL_HELP)
    add("--src", type=Path, required=True, metavar="FILE", help="source text")
    add("--tgt", type=Path, required=True, metavar="FILE", help="target text")
    add("--out", type=Path, required=True, help="prefix of the output files")
    measures = ("null_rate", "cross_entropy")
    add("--by", default="null_rate", choices=measures, help="measure to rank by (default: null_rate)")
    selection = parser.add_mutually_exclusive_group()
    threshold_help = "keep pairs with a score of at most X"
    selection.add_argument("--threshold", type=finite_number, metavar="X", help=threshold_help)
    keep_help = "keep this share of the pairs, lowest scores first"
    selection.add_argument("--keep", type=share, metavar="SHARE", help=keep_help)
    add("--max-tokens", type=positive_integer, default=4096, help="tokens in a batch (default: 4096)")


def filter(arguments: argparse.Namespace) -> None:
    """Remove sentence pairs that are not translations of each other, by null attention (Zhang et al. 2021, §5.2).

    Source and target are texts with one sentence per line, plain, gzipped or pipes such as <(zcat FILE), tokenized like
    the model's training text but without BPE. OUT.scores receives one line per pair: the null rate of cross-attention
    and the cross-entropy per token. With --threshold or --keep, the selected pairs are written to OUT.SRC and OUT.TGT.
    Only mechanisms with null rows, such as ReLA and ReLUFormer, can rank by null rate.
    """
    prepare_fairseq_import()
    import numpy as np

    from relumt.analysis import filter as pairs_filter
    from relumt.corpora.parallel import track
    from relumt.runs.inference.loaded_model import load_model

    texts, by = (arguments.src, arguments.tgt), arguments.by
    room = require_writable(arguments.out.parent)
    loaded, data = load_model(arguments.checkpoint, arguments.data, arguments.cpu)
    languages = loaded.task.cfg.source_lang, loaded.task.cfg.target_lang
    scores_path, *outputs = (Path(f"{arguments.out}.{suffix}") for suffix in ("scores", *languages))
    for output in [path for path in (scores_path, *outputs) if path.exists()]:
        if any(output.samefile(text) for text in texts):
            raise UserError(f"{output}: would overwrite the input; choose another --out")
    for text, language, other in zip(texts, languages, reversed(languages), strict=True):
        if text.name.removesuffix(".gz").endswith(f".{other}"):
            raise UserError(f"{text}: expected {language}, but the file name says {other}; swap --src and --tgt")
    if by == "null_rate":
        pairs_filter.require_null_rows(loaded)
    pairs = pairs_filter.CopiedPairs(texts, room)
    scored = pairs_filter.score_pairs(loaded, pairs_filter.encode_pairs(loaded, data, pairs), arguments.max_tokens)
    scores = pairs_filter.write_scores(track(scored, f"score with {loaded.path}", len(pairs)), scores_path)
    num_too_long = np.count_nonzero(np.isnan(scores[:, pairs_filter.MEASURES.index("cross_entropy")]))
    suffix = f", {num_too_long} too long for the model" if num_too_long else ""
    print_status(f"{scores_path}: {len(scores)} pairs{suffix}")
    ranks = scores[:, pairs_filter.MEASURES.index(by)]
    if len(set(ranks[~np.isnan(ranks)])) == 1 < len(ranks):
        print_status(f"every pair has the same {by}, so it does not rank them; --keep ranks by cross_entropy")
    if arguments.threshold is not None:
        is_kept = ranks <= arguments.threshold
    elif arguments.keep is not None:
        is_kept = pairs_filter.select_lowest(scores, by, arguments.keep)
    else:
        return
    pairs_filter.write_selected(pairs, is_kept, (outputs[0], outputs[1]))
    print_status(f"{outputs[0]} and {outputs[1]}: {np.count_nonzero(is_kept)} of {len(pairs)} pairs by {by}")


def add_contrast_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add_common_arguments(parser)
    add("--checkpoint", type=Path, required=True, help=MODEL_HELP)
    examples_help = "contrastive examples: test.contrast.jsonl of relumt synth, or what relumt import-contrast wrote"
    add("--examples", type=Path, required=True, help=examples_help)
    add("--batch-size", type=positive_integer, default=64, help="translations in a batch (default: 64)")
    own_help = "let the model read its own translation of the context instead of the references"
    add("--own-context", action="store_true", help=own_help)


def contrast(arguments: argparse.Namespace) -> None:
    """Measure contrastive accuracy: how often a model prefers the reference translation of a sentence to variants.

    A model trained with --document-length reads the sentences in their context, as far as it fits into a chunk; any
    other model reads each sentence alone. The result is JSON, with the accuracy of the majority baseline, which ignores
    the context. Examples of CTXPro have no variants: their sentences are translated, and the accuracy is the share of
    translations with the expected form.
    """
    prepare_fairseq_import()
    from relumt.analysis import contrast as contrastive
    from relumt.analysis.ctxpro import measure_forms
    from relumt.corpora.contrastive import ExampleInContext, FormExample, find_keys, read_examples
    from relumt.runs.inference.translator import load

    path, size = arguments.examples, arguments.batch_size
    translator = load(arguments.checkpoint, arguments.data, arguments.cpu)
    loaded, data = translator.loaded, translator.encoding.data_bin.folder
    result: dict[str, object] = {"checkpoint": str(loaded.path), "document_length": loaded.document_length}
    if "expected" in find_keys(path):
        result |= measure_forms(translator, read_examples(path, FormExample), size)
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    examples = read_examples(path, ExampleInContext)
    candidates = list(contrastive.context_candidates(loaded, data, examples))
    if arguments.own_context:
        candidates = contrastive.after_own_context(loaded, candidates, translator.search, size)
    result |= {"target_context": "own translation" if arguments.own_context else "references"}
    decisions = contrastive.decide(loaded, candidates, size)
    result |= contrastive.summarize(examples, decisions)
    result |= {"mean_context_sentences": fmean(variants[0].num_context for variants in candidates)}
    result |= contrastive.accuracies(examples, decisions)
    print(json.dumps(result, indent=2, ensure_ascii=False))
