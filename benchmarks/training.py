"""Measure the training speed, the decoding speed and the memory of systems on the same batches, in alternating order.

    python benchmarks/training.py DATA-BIN --config configs/datasets/multi30k_de_en.toml --decode 10

A system is a name in configs/models.toml, optionally with flags of fairseq-train: "softmax --dropout 0". `stock` is
fairseq's own Transformer and criterion, without anything of relumt. Each system runs in a process of its own and takes
one training step in turn, so that what slows the machine slows all of them. With --decode, all then translate test
sentences by beam search, into sentences of the references' mean length, because untrained models do not know when to
stop. Reported are medians of the paired ratios of the baseline's time to the system's, with 95% intervals
from six pairs on, and the largest amount of memory that each process held. Uses a GPU if there is one.
"""

import argparse
import json
import math
import shlex
import subprocess
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from batches import Reference
from measurement import (
    ONE_DEVICE,
    Measurement,
    Workload,
    fairseq_command,
    measure,
    median_milliseconds,
    relative_seconds,
    relumt_arguments,
    tokens_per_second,
)
from step_profile import profile_tables
from timing import Speeds, benchmark_device, is_up_to_date, print_origin, write_results
from worker_pool import Answer

import relumt
from relumt.arguments import ArgumentParser, positive_integer, whole_number
from relumt.errors import UserError, exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import
from relumt.runs.dataset_config import configs_folder, require_dataset
from relumt.runs.environment import PRECISIONS, Device, Precision
from relumt.runs.flags import Flags, command_line, parse_flags
from relumt.runs.model_config import require_model

HERE = Path(__file__).resolve().parent
CONFIGS = configs_folder(HERE.parent)
STOCK = "stock"
JOEYNMT = "JoeyNMT"
MIB = 2**20
SETTINGS = ("baseline", "precision", "steps", "warm_up", "repeats", "profile", "decode", "threads")
"""Arguments that results depend on."""


def parse_model(model: str) -> Flags:
    """Return the flags that "NAME [flags…]" stands for; raise UserError if there is no such model."""
    name, *flags = shlex.split(model)
    return require_model(name, CONFIGS) | parse_flags(flags, repr(model))


def is_stock(model: str) -> bool:
    """Return whether a model is fairseq's own."""
    return model.split()[0] == STOCK


def without_task(flags: Flags) -> Flags:
    """Return the flags without the task and its own flags, which stock fairseq lacks; the batches are given anyway."""
    from fairseq.tasks.translation import TranslationConfig

    from relumt.plugin.tasks.documents import DocumentsConfig

    own = {field.name for field in fields(DocumentsConfig)} - {field.name for field in fields(TranslationConfig)}
    return {name: values for name, values in flags.items() if name[2:].replace("-", "_") not in own | {"task"}}


def fairseq_arguments(args: argparse.Namespace, model: str) -> list[str]:
    """Return the arguments of fairseq-train but for the device; for stock fairseq, they do not mention relumt."""
    flags = require_dataset(args.config.stem, args.config.parent).train | parse_model(model)
    if is_stock(model):
        return [args.data_bin, *ONE_DEVICE, *command_line(without_task(flags)), *args.flags]
    return relumt_arguments(args.data_bin, [*command_line(flags), *args.flags])


def describe_inputs(args: argparse.Namespace) -> dict[str, Any]:
    """Return what results depend on besides the device and the revision, as JSON has it."""
    return {
        "systems": {model: fairseq_arguments(args, model) for model in args.models},
        "joeynmt": str(args.joeynmt or ""),
        "settings": {name: getattr(args, name) for name in SETTINGS},
    }


def systems_by_name(models: list[str], devices: list[Device]) -> dict[str, tuple[str, Device]]:
    """Return name → (model, device with precision) of every model in every precision.

    Stock fairseq trains in bf16 on a GPU only, and only because the worker undoes that it takes this as a request for a
    TPU; on a CPU it is measured without.
    """
    systems = {}
    for model in models:
        for device in devices:
            if is_stock(model) and device.precision == "bf16" and device.kind == "cpu":
                device = benchmark_device("fp32")
            systems[model if len(devices) == 1 else f"{model}, {device.precision}"] = (model, device)
    return systems


def joeynmt_command(python: Path, batches: Path, settings: dict[str, Any]) -> list[object]:
    """Return the command of JoeyNMT's process; raise UserError if this Python cannot import JoeyNMT."""
    try:
        subprocess.run([python, "-c", "import joeynmt.training"], capture_output=True, check=True, text=True)
    except OSError as error:
        raise UserError(f"--joeynmt: {python} cannot be run ({error.strerror}); give a Python with JoeyNMT") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().rpartition("\n")[2]
        raise UserError(f"--joeynmt: {python} cannot import JoeyNMT ({reason}); install it there") from None
    return [python, HERE / "joeynmt_worker.py", batches, json.dumps(settings)]


def training_table(baseline: str, speeds: Speeds, measured: dict[str, Measurement]) -> str:
    """Return a Markdown table of training."""
    lines = [
        f"| system | steps | training speed relative to {baseline} (median) | 95% interval | target tokens/s "
        "| peak memory, MiB | above the first step's start, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, system in measured.items():
        memory = f"{system.peak / MIB:.0f} | {(system.peak - system.held) / MIB:.0f}"
        lines.append(f"{speed_cells(name, speeds)} | {tokens_per_second(system.training):.0f} | {memory} |")
    return "\n".join(lines)


def pass_table(baseline: str, speeds: Speeds, passes: dict[str, list[Answer]]) -> str:
    """Return a Markdown table of one pass over the steps."""
    lines = [
        f"| system | steps | training speed relative to {baseline} (median) | 95% interval | target tokens/s "
        "| step, ms (median) |",
        "|---|---|---|---|---|---|",
    ]
    for name, turns in passes.items():
        absolute = f"{tokens_per_second(turns):.0f} | {median_milliseconds(turns):.1f}"
        lines.append(f"{speed_cells(name, speeds)} | {absolute} |")
    return "\n".join(lines)


def decoding_table(baseline: str, speeds: Speeds, measured: dict[str, Measurement]) -> str:
    """Return a Markdown table of decoding."""
    lines = [
        f"| system | batches | decoding speed relative to {baseline} (median) | 95% interval | output tokens/s |",
        "|---|---|---|---|---|",
    ]
    for name, system in measured.items():
        lines.append(f"{speed_cells(name, speeds)} | {tokens_per_second(system.decoding):.0f} |")
    return "\n".join(lines)


def speed_cells(name: str, speeds: Speeds) -> str:
    """Return the first cells of a row of a table."""
    speed = speeds[name]
    interval = f"{speed['low']:.3f}–{speed['high']:.3f}" if "low" in speed else ""
    return f"| {name} | {speed['pairs']} | {speed['median']:.3f} | {interval}"


def absolute_values(measured: dict[str, Measurement]) -> dict[str, dict[str, float]]:
    """Return system → tokens per second and bytes, for the JSON file."""
    values = {}
    for name, system in measured.items():
        values[name] = {
            "training_tokens_per_second": tokens_per_second(system.training),
            "held_bytes": system.held,
            "peak_bytes": system.peak,
        }
        if system.decoding:
            values[name]["decoding_tokens_per_second"] = tokens_per_second(system.decoding)
    return values


def parse_arguments() -> argparse.Namespace:
    """Return the command-line arguments."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_bin")
    parser.add_argument("--config", type=Path, required=True, help="file in configs/datasets: sizes, optimizer, batch")
    parser.add_argument(
        "--models", nargs="+", default=[STOCK, "softmax", "reluformer", "rela_g", "inhibitor"], metavar="MODEL"
    )
    parser.add_argument("--baseline", metavar="MODEL", help="(default: the first of --models)")
    parser.add_argument("--joeynmt", type=Path, metavar="PYTHON", help="also measure JoeyNMT, with its Python")
    parser.add_argument("--steps", type=positive_integer, default=40, help="timed steps (default: %(default)s)")
    parser.add_argument("--warm-up", type=whole_number, default=3, help="steps before timing (default: %(default)s)")
    parser.add_argument(
        "--repeats",
        type=whole_number,
        default=0,
        help="time the same steps again so often, because libraries prepare for each new shape (default: %(default)s)",
    )
    parser.add_argument(
        "--profile",
        type=whole_number,
        default=0,
        metavar="STEPS",
        help="then show where the time of so many steps goes (default: %(default)s)",
    )
    parser.add_argument(
        "--time-limit", type=float, default=math.inf, metavar="SECONDS", help="for each pass over the steps"
    )
    parser.add_argument(
        "--decode", type=whole_number, default=0, metavar="BATCHES", help="batches to translate (default: %(default)s)"
    )
    parser.add_argument("--threads", type=positive_integer, default=torch.get_num_threads())
    parser.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, help="one or several (default: fp16 on a GPU, fp32 on a CPU)"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument(
        "--flags", nargs=argparse.REMAINDER, default=[], help="all that follows goes to fairseq-train for every model"
    )
    args = parser.parse_args()
    args.baseline = args.baseline or args.models[0]
    if args.baseline not in args.models:
        raise UserError(f"--models must include the baseline, {args.baseline}")
    return args


def measure_systems(args: argparse.Namespace, systems: dict[str, tuple[str, Device]]) -> dict[str, Measurement]:
    """Return what was measured of each system (name → model and device), and of JoeyNMT if asked for."""
    reference = Reference(fairseq_arguments(args, "softmax" if is_stock(args.baseline) else args.baseline))
    with tempfile.TemporaryDirectory() as folder:
        batches = Path(folder) / "batches.pt"
        translations = reference.write_batches(batches, args.warm_up + args.steps, args.decode)
        commands = {
            name: fairseq_command(batches, [*fairseq_arguments(args, model), *device.train_flags()])
            for name, (model, device) in systems.items()
        }
        if args.joeynmt:
            settings = reference.peer_settings(fp16=benchmark_device(None).precision == "fp16")
            commands[JOEYNMT] = joeynmt_command(args.joeynmt, batches, settings)
        steps = range(args.warm_up, args.warm_up + args.steps)
        repetitions = (args.repeats, args.profile, args.time_limit)
        return measure(commands, Workload(range(args.warm_up), steps, translations, args.threads, *repetitions))


def main() -> None:
    """Measure, print the tables and write the JSON file."""
    args = parse_arguments()
    prepare_fairseq_import()
    relumt.register()
    precisions: list[Precision | None] = args.precision or [None]
    systems = systems_by_name(args.models, [benchmark_device(precision) for precision in precisions])
    baseline, device = next((name, device) for name, (model, device) in systems.items() if model == args.baseline)
    inputs = describe_inputs(args)
    if is_up_to_date(args.json, inputs, device):
        return
    measured = measure_systems(args, systems)
    training = relative_seconds(baseline, {name: system.training for name, system in measured.items()})
    print(training_table(baseline, training, measured))
    results: dict[str, Any] = {"inputs": inputs, "throughput": training, "systems": absolute_values(measured)}
    passes = {name: system.training for name, system in measured.items()}
    for number in range(args.repeats):
        passes = {name: system.repeated[number] for name, system in measured.items()}
        results[f"repetition {number + 1}"] = repetition = relative_seconds(baseline, passes)
        print(f"\nThe same steps again, pass {number + 2}:\n\n{pass_table(baseline, repetition, passes)}")
    if args.profile:
        summaries = {name: system.profile for name, system in measured.items() if system.profile}
        results["profiles"] = summaries
        print("\n" + profile_tables(summaries, {name: median_milliseconds(turns) for name, turns in passes.items()}))
    if args.decode:
        results["decoding"] = relative_seconds(baseline, {name: system.decoding for name, system in measured.items()})
        print("\n" + decoding_table(baseline, results["decoding"], measured))
    print_origin(args.threads)
    if args.json:
        write_results(args.json, "training steps", baseline, device, results)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
