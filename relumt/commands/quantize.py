"""Quantize a trained run with Inhibitor attention, translate with integers, and compare BLEU with the float model's.

The scales are calibrated on the validation set, never on the test set. Everything is written to RUN/quantized/; the
run's own translations and scores stay as they are. What is translated already is not translated again; a table of all
widths that were translated is printed.
"""

import argparse
import resource
from dataclasses import replace
from pathlib import Path

from relumt.arguments import positive_integer, valid_path
from relumt.console import print_status
from relumt.errors import AttemptFailedError
from relumt.quantized.quantization import MAX_BITS, MIN_BITS, Quantization
from relumt.runs.environment import Device, find_device
from relumt.runs.quantized_record import FLOAT, QuantizedModel, read_quantized_record, save_quantized_record
from relumt.runs.quantized_steps import (
    EvaluatedRun,
    find_evaluated_run,
    score_translation,
    start_translation,
)
from relumt.runs.run_lock import RunLock
from relumt.runs.step_processes import preload_fairseq, run_fairseq, run_in_child

CALIBRATION = "valid"
"""The subset that scales are calibrated on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=valid_path, metavar="RUN", help="folder of a run that is trained and evaluated")
    parser.add_argument(
        "--bits",
        type=positive_integer,
        default=MAX_BITS,
        help=f"width of stored integers, {MIN_BITS} to {MAX_BITS} (default: {MAX_BITS})",
    )
    parser.add_argument(
        "--attention-only", action="store_true", help="leave the linear layers in float (default: quantize them, too)"
    )
    parser.add_argument(
        "--subset",
        choices=["valid", "test"],
        default="valid",
        help="what to translate; choose the settings on valid, and translate test once (default: valid)",
    )
    parser.add_argument("--data", type=valid_path, help="data-bin (default: that of the run)")


def run(arguments: argparse.Namespace) -> None:
    """Quantize, translate with both models, and print the comparison."""
    quantization = Quantization(arguments.bits, "attention" if arguments.attention_only else "all")
    evaluated = find_evaluated_run(arguments.run, arguments.data)
    for subset in (CALIBRATION, arguments.subset):
        evaluated.config.data_bin.require_subset(subset)
    preload_fairseq()
    device = run_in_child(find_device, None)
    lock = RunLock()
    lock.acquire(arguments.run)
    checkpoint = run_in_child(prepare_checkpoint, evaluated, quantization)
    for name, path in ((FLOAT, evaluated.checkpoint), (quantization.name, checkpoint)):
        translate(evaluated, name, path, arguments.subset, device)
    from relumt.tables.quantized_comparison import compare_models
    from relumt.tables.rendering import to_markdown

    print(to_markdown(compare_models(arguments.run, arguments.subset)))


def prepare_checkpoint(run: EvaluatedRun, quantization: Quantization) -> Path:
    """Return the quantized checkpoint; write and record it unless it was made from this checkpoint and these data.

    Raises:
        UserError: the model has no Inhibitor attention, or is not this run's.
    """
    from relumt.files import file_sha256
    from relumt.inference.quantized_checkpoint import write_quantized_checkpoint
    from relumt.runs.evaluation_setup import check_checkpoint

    config = run.model_config(quantization.name)
    path = config.checkpoints / f"checkpoint_{quantization.name}.pt"
    original_sha256 = file_sha256(run.checkpoint)
    data = config.data_bin.evaluation_checksum(CALIBRATION)
    record = read_quantized_record(config.folder)
    if record.model and path.is_file():
        made_from = (record.model.original_sha256, record.model.calibration_data)
        if made_from == (original_sha256, data) and record.model.checkpoint_sha256 == file_sha256(path):
            return path
    check_checkpoint(run.config, run.record, run.evaluation.setup)
    converted = write_quantized_checkpoint(run.checkpoint, config.data_bin.folder, CALIBRATION, quantization, path)
    model = QuantizedModel(
        bits=quantization.bits,
        part=quantization.part,
        original_sha256=original_sha256,
        checkpoint_sha256=file_sha256(path),
        calibration_subset=CALIBRATION,
        calibration_data=data,
        attentions=len(converted.attentions),
        linears=len(converted.linears),
        accumulator_bits=converted.accumulator_bits(),
    )
    save_quantized_record(config.folder, replace(record, model=model))
    print_status(f"{path}: {model.attentions} attentions and {model.linears} linear layers in {model.bits} bits")
    return path


def translate(run: EvaluatedRun, name: str, checkpoint: Path, subset: str, device: Device) -> None:
    """Translate and score a subset with a checkpoint, unless this was done before.

    Raises:
        AttemptFailedError: fairseq-generate failed.
    """
    translation = run_in_child(start_translation, run, name, checkpoint, subset, device)
    if translation is None:
        print_status(f"{run.model_config(name).folder}: {subset} translated already")
        return
    before = children_cpu_seconds()
    if run_fairseq(translation.command, "generate", append=False):
        raise AttemptFailedError(f"fairseq-generate failed; see the end of {translation.command.log}")
    run_in_child(score_translation, run, name, translation.setup, children_cpu_seconds() - before)


def children_cpu_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
