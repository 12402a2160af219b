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
import math
import re
import shlex
import statistics
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import timing
import torch
from fairseq_worker import KINDS

import relumt
from relumt.errors import UserError, exit_on_user_error
from relumt.installation import prepare_fairseq_import
from relumt.process import ArgumentParser, positive_integer, whole_number
from relumt.runs.dataset_config import configs_folder, require_dataset, require_model
from relumt.runs.environment import PRECISIONS, Device
from relumt.runs.flags import Flags, command_line, parse_flags

CONFIGS = configs_folder(Path(__file__).resolve().parents[1])
STOCK = "stock"
MIB = 2**20
SETTINGS = ("baseline", "precision", "steps", "warm_up", "repeats", "profile", "decode", "threads")
"""Arguments that results depend on."""


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
    """Return the arguments of fairseq-train for "NAME [flags…]", but for the device.

    Those of stock fairseq do not mention relumt.

    Raises:
        UserError: there is no such model or dataset.
    """
    name, *own = shlex.split(model)
    flags = require_dataset(args.config.stem, args.config.parent).train
    flags = flags | require_model(name, CONFIGS) | parse_flags(own, repr(model))
    if is_stock(model):
        return [args.data_bin, *timing.ONE_DEVICE, *command_line(without_task(flags)), *args.flags]
    return timing.relumt_arguments(args.data_bin, [*command_line(flags), *args.flags])


def describe_inputs(args: argparse.Namespace) -> dict[str, Any]:
    """Return what results depend on besides the device and the revision, as JSON has it."""
    return {
        "systems": {model: fairseq_arguments(args, model) for model in args.models},
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
                device = timing.benchmark_device("fp32")
            systems[model if len(devices) == 1 else f"{model}, {device.precision}"] = (model, device)
    return systems


def speed_table(
    what: str, baseline: str, answers: Mapping[str, list[timing.Answer]], others: Mapping[str, list[str]]
) -> str:
    """Return a Markdown table of speeds.

    Args:
        what: "training" or "decoding".
        baseline: system that speeds are relative to.
        answers: system → time and tokens by step or batch.
        others: header of a further column → its cells.
    """
    header = ["system", "pairs", f"{what} speed relative to {baseline} (median)", "95% interval", "tokens/s", *others]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    speeds = timing.relative_seconds(baseline, answers)
    for (name, turns), *cells in zip(answers.items(), *others.values(), strict=True):
        speed = speeds[name]
        interval = f"{speed['low']:.3f}–{speed['high']:.3f}" if "low" in speed else ""
        row = [
            name,
            str(len(turns)),
            f"{speed['median']:.3f}",
            interval,
            f"{timing.tokens_per_second(turns):.0f}",
            *cells,
        ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def profile_tables(measured: Mapping[str, timing.Measurement]) -> str:
    """Return Markdown tables of where a step's time goes: of all systems, and of each one's kernels and operators."""
    kinds = [*KINDS, "other"]
    header = ["system", "step, ms", "GPU busy, ms", "share", *(f"{kind}, ms" for kind in kinds)]
    header += ["launches", "synchronizations", "numbers read"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    profiles = {name: system.profile for name, system in measured.items() if system.profile}
    for name, found in profiles.items():
        busy, step = found["busy"], median_milliseconds(measured[name].passes[-1])
        cells = [f"{step:.1f}", f"{busy:.1f}", f"{busy / step:.2f}"]
        cells += [f"{found['kinds'].get(kind, 0):.2f}" for kind in kinds]
        cells += [f"{found[count]:.0f}" for count in ("launches", "synchronizations", "reads")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for name, found in profiles.items():
        for what in ("kernels", "operators"):
            if found[what]:  # there are no kernels on a CPU
                lines += ["", f"| {name}: {what} | own ms per step |", "|---|---|"]
            lines += [f"| `{shorten(called)}` | {milliseconds:.3f} |" for called, milliseconds in found[what]]
    return "\n".join(lines)


def median_milliseconds(answers: list[timing.Answer]) -> float:
    """Return the median time of a step."""
    return statistics.median(answer["seconds"] for answer in answers) * 1e3


def shorten(name: str) -> str:
    """Return at most 90 characters of a kernel's name, which can stand in a table."""
    return re.sub(r"\s+", " ", name.replace("|", "/"))[:90]


def parse_arguments() -> argparse.Namespace:
    """Return the command-line arguments."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_bin")
    parser.add_argument("--config", type=Path, required=True, help="file in configs/datasets: sizes, optimizer, batch")
    parser.add_argument(
        "--models", nargs="+", default=[STOCK, "softmax", "reluformer", "rela_g", "inhibitor"], metavar="MODEL"
    )
    parser.add_argument("--baseline", metavar="MODEL", help="(default: the first of --models)")
    parser.add_argument("--steps", type=positive_integer, default=40, help="timed steps (default: %(default)s)")
    parser.add_argument("--warm-up", type=whole_number, default=3, help="steps before timing (default: %(default)s)")
    parser.add_argument("--repeats", type=whole_number, default=0, help="passes over the same, then known, shapes")
    parser.add_argument("--profile", type=whole_number, default=0, metavar="STEPS", help="show where their time goes")
    parser.add_argument("--time-limit", type=float, default=math.inf, metavar="SECONDS", help="for each pass")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="time only while no other measurement with FILE does")
    parser.add_argument("--decode", type=whole_number, default=0, metavar="BATCHES", help="batches to translate")
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


def measure_systems(
    args: argparse.Namespace, systems: Mapping[str, tuple[str, Device]]
) -> dict[str, timing.Measurement]:
    """Return what was measured of each system (name → model and device)."""
    reference = fairseq_arguments(args, "softmax" if is_stock(args.baseline) else args.baseline)
    arguments = {
        name: [*fairseq_arguments(args, model), *device.train_flags()] for name, (model, device) in systems.items()
    }
    amounts = (args.decode, args.repeats, args.profile, args.time_limit, args.lock)
    return timing.measure_in_turns(arguments, reference, args.warm_up, args.steps, args.threads, *amounts)


def main() -> None:
    """Measure, print the tables and write the JSON file."""
    args = parse_arguments()
    prepare_fairseq_import()
    relumt.register()
    systems = systems_by_name(
        args.models, [timing.benchmark_device(precision) for precision in args.precision or [None]]
    )
    baseline, device = next((name, device) for name, (model, device) in systems.items() if model == args.baseline)
    inputs = describe_inputs(args)
    if timing.is_up_to_date(args.json, inputs, device):
        return
    measured = measure_systems(args, systems)
    results: dict[str, Any] = {"inputs": inputs, "systems": {name: asdict(found) for name, found in measured.items()}}
    peaks = [f"{system.peak / MIB:.0f}" for system in measured.values()]
    added = [f"{(system.peak - system.held) / MIB:.0f}" for system in measured.values()]
    others = {"peak memory, MiB": peaks, "above the first step's start, MiB": added}
    if args.warm_up:
        others["first step, s"] = [f"{system.warm_up[0]['seconds']:.1f}" for system in measured.values()]
    for number in range(args.repeats + 1):
        turns = {name: system.passes[number] for name, system in measured.items()}
        results[f"repetition {number}" if number else "throughput"] = timing.relative_seconds(baseline, turns)
        others["step, ms"] = [f"{median_milliseconds(own):.1f}" for own in turns.values()]
        print(f"\nThe same steps, pass {number + 1}:\n" if number else "")
        print(speed_table("training", baseline, turns, others))
    if args.profile:
        print("\n" + profile_tables(measured))
    if args.decode:
        decoding = {name: system.decoding for name, system in measured.items()}
        results["decoding"] = timing.relative_seconds(baseline, decoding)
        print("\n" + speed_table("decoding", baseline, decoding, {}))
    timing.print_origin(args.threads)
    if args.json:
        timing.write_results(args.json, "training steps", baseline, device, results)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
