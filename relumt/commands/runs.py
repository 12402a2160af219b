"""The commands that train models and use them, and those about the installation."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import relumt
from relumt.errors import UserError, print_status
from relumt.files import load_text
from relumt.installation import prepare_fairseq_import
from relumt.process import positive_integer, seed

RUN_HELP = "folder of a trained run, for its scored (else best) checkpoint; or a checkpoint"
DATA_HELP = "data-bin of the model (default: that of the run)"


def user_dir(_: argparse.Namespace) -> None:
    """Print the folder to pass to fairseq's --user-dir."""
    print(Path(relumt.__file__).resolve().parent)


def doctor(_: argparse.Namespace) -> None:
    """Check the installation, the machine and, if there is a GPU, every kernel of attention.

    With a GPU this compiles all kernels, which takes minutes; each runs in a process that it may crash. Nothing is
    downloaded. The exit status is 1 if something that training needs is broken.
    """
    from relumt.doctor import report_machine

    report_machine()


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the stages and the arguments that name a run."""
    from relumt.runs.dataset_config import CONFIGS_HELP, configs_folder
    from relumt.runs.environment import PRECISIONS

    add = parser.add_argument
    add("--train", action="store_true", help="train the model, or resume training")
    add("--evaluate", action="store_true", help="translate the test set and score it")
    add("--analyze", action="store_true", help="measure attention and feed-forward layers")
    add("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    add("--configs", type=Path, default=configs_folder(Path()), help=CONFIGS_HELP)
    add("--seed", type=seed, default=1, help="random seed, part of the run's path (default: 1)")
    add("--data-bin", type=Path, help="data-bin (default: data-bin/DATASET)")
    add("--precision", choices=PRECISIONS, help="of training (default: fp16 on a GPU, fp32 on a CPU)")
    add("--force", action="store_true", help="continue with other settings than the recorded ones, and record that")
    add("--dry-run", action="store_true", help="print fairseq's commands instead of running them")
    add("--verbose", action="store_true", help="print all that fairseq logs, instead of its progress")
    words_help = (
        "a name in configs/datasets, or the path of a data-bin; a name in configs/models.toml; then further flags of "
        "the fairseq command. After -- nothing is an option of this command"
    )
    add("words", nargs=argparse.REMAINDER, metavar="[--] DATASET MODEL", help=words_help)


def run(arguments: argparse.Namespace) -> None:
    """Train a run, translate and score its test set, and analyze it: what the scripts in scripts/ call.

    DATASET and MODEL may be followed by flags: of fairseq-train with --train, else of fairseq-generate. Stages that are
    complete are skipped. Each command of fairseq is printed as it starts.
    """
    from relumt.runs.environment import find_device
    from relumt.runs.evaluation import evaluate, print_commands
    from relumt.runs.flags import join_flag_values
    from relumt.runs.record import find_record
    from relumt.runs.run_config import resolve_run_config
    from relumt.runs.training import Request, train

    if not (arguments.train or arguments.evaluate or arguments.analyze):
        raise UserError("expected at least one stage, found none; give --train, --evaluate or --analyze")
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    dry_run, verbose = arguments.dry_run or "--dry-run" in words, arguments.verbose or "--verbose" in words
    words = [word for word in words if word not in ("--dry-run", "--verbose")]
    if len(words) < 2:
        raise UserError(f"expected DATASET and MODEL, found {words}; see --help")
    dataset, model, *flags = words
    config = resolve_run_config(dataset, model, arguments.seed, arguments.configs, arguments.runs, arguments.data_bin)
    device = find_device(arguments.precision)
    request = Request(device, arguments.data_bin, arguments.force, dry_run, verbose)
    generate_flags = [] if arguments.train else flags
    if arguments.train:
        train(config, request, flags)
    if arguments.evaluate:
        record = find_record(config.folder)
        if dry_run and (record is None or not record.has_ended):
            trained = config.train_flags(flags if arguments.train else [])
            print_commands(config, request, config.generate_flags(generate_flags, join_flag_values(trained)))
        else:
            evaluate(config, request, generate_flags)
    if arguments.analyze and not dry_run:
        from relumt.commands.analysis import analyze_run

        analyze_run(config, arguments.data_bin)


def add_average_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoints and --out."""
    checkpoints_help = "checkpoint_*.pt of one training run"
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help=checkpoints_help)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="checkpoint to write")


def average(arguments: argparse.Namespace) -> None:
    """Average the parameters of several checkpoints of one training run into one checkpoint.

    The result translates like any checkpoint, but training cannot resume from it.
    """
    if arguments.out.exists():
        raise UserError(f"{arguments.out}: exists; choose another --out, or remove the file")
    from relumt.plugin.checkpoints.averaging import write_average

    write_average(arguments.checkpoints, arguments.out)
    print_status(f"{arguments.out}: the average of {len(arguments.checkpoints)} checkpoints")


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the format and the folder."""
    add = parser.add_argument
    add("model", type=Path, metavar="RUN", help=RUN_HELP)
    add("--to", required=True, choices=("fairseq", "safetensors"), help="format of the weights")
    add("--out", type=Path, required=True, metavar="FOLDER", help="new folder for the model")
    add("--data", type=Path, help=DATA_HELP)


def export(arguments: argparse.Namespace) -> None:
    """Write a trained model for other programs to a folder, with its dictionaries and subwords.

    fairseq: model.pt, a checkpoint of the stock architecture `transformer`, which plain fairseq and CTranslate2's
    converter read; only for softmax attention. safetensors: any model, without pickle; relumt.load and relumt translate
    read it.
    """
    prepare_fairseq_import()
    from relumt.runs.inference.export import export_model

    path = export_model(arguments.model, arguments.data, arguments.to, arguments.out)
    print_status(f"wrote {path} to {arguments.out}")


def add_score_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the run, and the program that scores it."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="folder of a run that is translated and scored")
    add("--external", metavar="COMMAND", help="program that scores, and its arguments")
    add("--name", default="external", help="name of the metric in run.json (default: external)")
    add("--remove", metavar="NAME", help="remove the score of this name instead")
    add("--subset", default="test", help="the translated subset (default: test)")
    add("--data", type=Path, help="data-bin that was translated (default: that of the run)")
    limit_help = "seconds after which the program is killed (default: %(default)s)"
    add("--time-limit", type=positive_integer, default=3600, metavar="S", help=limit_help)


def score(arguments: argparse.Namespace) -> None:
    """Score a translated run with another program, for example a neural metric in an environment of its own.

    The program reads a JSON object per line (source, translation, reference) and prints a number per line. It may end
    with {"score": …, "version": …}. Without --external, the segments are printed. docs/using.md has examples.
    """
    from relumt.runs import external_scores

    scored = arguments.run, arguments.subset, arguments.data
    if arguments.remove is not None:
        external_scores.remove_external_score(arguments.run, arguments.subset, arguments.remove)
    elif arguments.external is None:
        print(external_scores.encode_segments(external_scores.segments_of_run(*scored)).decode(), end="")
    else:
        found = external_scores.add_external_score(*scored, arguments.name, arguments.external, arguments.time_limit)
        result = {"run": str(arguments.run), "subset": arguments.subset, "name": arguments.name}
        print(json.dumps(result | asdict(found), indent=2, ensure_ascii=False))


def add_score_documents_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the texts, and how they divide into chunks and documents."""
    add = parser.add_argument
    add("--hyp", type=Path, required=True, help="translations, one chunk per line")
    add("--chunks", type=Path, help="number of sentences in each chunk, one per line (default: 1)")
    add("--ref", type=Path, required=True, help="references, one sentence per line")
    add("--docs", type=Path, required=True, help="number of sentences in each document, one per line")
    add("--separator", default="", help="token between the sentences of a chunk")
    tokenizers = ["none", "13a", "zh", "char"]
    add("--tokenize", default="13a", choices=tokenizers, help="sacreBLEU's tokenizer (default: 13a)")
    add("--lowercase", action="store_true", help="ignore case")


def score_documents(arguments: argparse.Namespace) -> None:
    """Score translated documents: d-BLEU, one document per line, and with --separator s-BLEU, one sentence per line.

    A line of HYP is a chunk, as a model trained with --document-length writes it; CHUNKS has the number of sentences in
    each chunk. Omit CHUNKS for translations of single sentences. The scores are printed as JSON.
    """
    from sacrebleu.metrics import BLEU

    from relumt.corpora.document_lengths import read_document_lengths, read_lengths
    from relumt.plugin.tasks import document_chunks
    from relumt.runs.scores import corpus_score

    separator = arguments.separator
    hypotheses = [document_chunks.detach_separators(line, separator) for line in load_text(arguments.hyp)]
    references = load_text(arguments.ref)
    documents = read_document_lengths(arguments.docs, len(references))
    chunks = read_lengths(arguments.chunks) if arguments.chunks else [1] * len(hypotheses)
    if len(chunks) != len(hypotheses):
        raise UserError(f"{arguments.hyp} has {len(hypotheses)} lines, but {arguments.chunks} has {len(chunks)}")
    counts = document_chunks.chunks_per_document(chunks, documents)
    mismatches = document_chunks.find_mismatches(hypotheses, chunks, separator)
    metric = BLEU(tokenize=arguments.tokenize, lowercase=arguments.lowercase, force=True)
    joined = document_chunks.join_groups(
        [document_chunks.remove_separators(chunk, separator) for chunk in hypotheses], counts
    )
    d_bleu = corpus_score(metric, joined, document_chunks.join_groups(references, documents))
    result: dict[str, Any] = {"documents": len(documents), "d-BLEU": asdict(d_bleu)}
    if separator:
        split = document_chunks.split_chunks(hypotheses, chunks, separator)
        result |= {
            "chunks": len(chunks),
            "chunks with another number of separators": len(mismatches),
            "s-BLEU": asdict(corpus_score(metric, split, references)),
        }
    print(json.dumps(result, indent=2, ensure_ascii=False))
