"""Measure the decoding speed of trained models by source length ([RL] Fig. 2), alternating in one process.

    python benchmarks/decoding.py RUNS DATASET --models softmax rela_g

The runs are the first seeds in RUNS/DATASET/MODEL. They translate with the settings in configs/datasets, but one
sentence at a time. The test sentences are split by length into ten groups of equal size. All models translate a sample
of each group several times, in alternating order. Reported is, for each group and for all together, the median of the
first model's time over each model's, with a 95% interval from six repeats on. With --steps, training is measured as
well ([RL] Table 2): as in training.py, but with the flags that the runs were trained with. Uses a GPU if there is one.
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import timing
import torch

import relumt
from relumt.errors import UserError, exit_on_user_error
from relumt.installation import prepare_fairseq_import
from relumt.papers.experiments import Experiment
from relumt.papers.runs import find_runs
from relumt.papers.speeds import MIN_REPEATS, format_ratio
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.process import ArgumentParser, positive_integer, whole_number
from relumt.runs.dataset_config import configs_folder, require_dataset, require_model
from relumt.runs.environment import Device
from relumt.runs.flags import command_line, join_flag_values
from relumt.runs.record import RunRecord, find_data_bin, load_record

if TYPE_CHECKING:
    from relumt.runs.inference.search import SearchSettings

GROUPS = 10

WARM_UP = 3
"""Training steps before timing."""

CONFIGS = configs_folder(Path(__file__).resolve().parents[1]) / "datasets"

Translator = Callable[[list[int]], None]
"""A function that translates the test sentences with the given indices."""


def groups_by_length(lengths: list[int], sample: int) -> list[list[int]]:
    """Return the indices of up to `sample` sentences from each of ten equal groups, from shortest to longest."""
    order = np.argsort(lengths, kind="stable")
    return [
        group[np.linspace(0, len(group) - 1, min(sample, len(group))).astype(int)].tolist()
        for group in np.array_split(order, GROUPS)
    ]


def search_settings(dataset: str) -> "SearchSettings":
    """Return the settings of beam search in the dataset's file."""
    from relumt.runs.inference.search import settings_of_flags

    return settings_of_flags(join_flag_values(require_dataset(dataset, CONFIGS).generate), dataset)


def make_translator(
    loaded: Any, search: "SearchSettings", batch_size: int, generator_class: type | None = None
) -> Translator:
    """Return a function that translates with a model.

    Args:
        loaded: a model with its task.
        search: settings of beam search.
        batch_size: sentences per batch.
        generator_class: fairseq's or relumt's beam search; None for the one that fairseq-generate uses.
    """
    generator = loaded.task.build_generator([loaded.model], search.as_arguments(), generator_class)
    dataset = loaded.task.dataset("test")

    def translate(indices: list[int]) -> None:
        for start in range(0, len(indices), batch_size):
            batch = dataset.collater([dataset[index] for index in indices[start : start + batch_size]])
            loaded.task.inference_step(generator, [loaded.model], loaded.to_device(batch))

    return translate


def first_run(runs: Path, dataset: str, model: str) -> Path:
    """Return the folder of a model's first seed that was scored; raise UserError if there is none."""
    scored = [run for run in find_runs(Experiment(dataset, model), runs) if not run.diverged]
    if not scored:
        raise UserError(f"{runs / dataset / model} has no scored run; make one with scripts/run.sh {dataset} {model}")
    return scored[0].folder


def find_models(args: argparse.Namespace) -> dict[str, Path]:
    """Return the folder of each model's run, in the order of the command line: the first is the baseline."""
    return {model: first_run(args.runs, args.dataset, model) for model in args.models}


def describe_inputs(args: argparse.Namespace) -> dict[str, Any]:
    """Return what results depend on besides the device and the revision, as JSON has it."""
    return {
        "checkpoints": {
            model: load_record(run).test_evaluation.setup.checkpoint_sha256 for model, run in find_models(args).items()
        },
        "generate": require_dataset(args.dataset, CONFIGS).generate,
        "threads": torch.get_num_threads(),
        "settings": {name: value for name, value in vars(args).items() if name not in ("runs", "json")},
    }


def load_models(args: argparse.Namespace) -> dict[str, Any]:
    """Load the models and the test set for translation."""
    from relumt.runs.inference.loaded_model import load_model, with_texts

    loaded_models = {}
    for model, run in find_models(args).items():
        loaded, _ = load_model(run, with_texts(run, None), cpu=False)
        loaded.load_subset("test")
        loaded.model.make_generation_fast_()
        loaded_models[model] = loaded
    return loaded_models


def stock_twin(loaded: Any) -> Any:
    """Return fairseq's own Transformer with the weights of a model that uses softmax everywhere, on the same data."""
    from fairseq.models.transformer import TransformerModel

    from relumt.attention.softmax import SoftmaxAttention
    from relumt.plugin.model.attention import MechanismAttention

    attentions = [module for module in loaded.model.modules() if isinstance(module, MechanismAttention)]
    if not all(isinstance(module.mechanism, SoftmaxAttention) for module in attentions):
        raise UserError(
            f"--stock: {loaded.path} has attentions other than softmax; name a softmax model first in --models"
        )
    settings = load_checkpoint_safely(loaded.path)["cfg"]["model"]
    model = TransformerModel.build_model(settings, loaded.task)
    model.load_state_dict(loaded.model.state_dict())
    model = model.eval().to(next(loaded.model.parameters()).device)
    model.make_generation_fast_()
    return replace(loaded, model=model)


def make_stock_translator(loaded: Any, search: "SearchSettings", batch_size: int) -> Translator:
    """Return a function that translates with the stock twin of a model as fairseq alone would.

    The search is fairseq's, and products have PyTorch's default precision, which relumt changes for the process.
    """
    from fairseq.sequence_generator import SequenceGenerator

    translate = make_translator(stock_twin(loaded), search, batch_size, SequenceGenerator)

    def translate_as_stock(indices: list[int]) -> None:
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            translate(indices)
        finally:
            torch.set_float32_matmul_precision(precision)

    return translate_as_stock


def recorded_flags(record: RunRecord) -> list[str]:
    """Return the flags that a run was trained with.

    run.json joins the values of a flag into one string. Where configs/ has the same values, they are taken from there,
    since a value may contain a space; otherwise the string is split at spaces.
    """
    configured = require_dataset(record.dataset, CONFIGS).train | require_model(record.model, CONFIGS.parent)
    as_read, recorded = join_flag_values(configured), record.provenance.flags
    return command_line(
        {name: configured[name] if as_read.get(name) == text else text.split() for name, text in recorded.items()}
    )


def training_speeds(args: argparse.Namespace, device: Device) -> timing.Speeds:
    """Return the speed of training steps by model; all train on the batches of the first."""
    arguments = {}
    for model, run in find_models(args).items():
        record = load_record(run)
        arguments[model] = timing.relumt_arguments(str(find_data_bin(run, record)), recorded_flags(record))
    reference = arguments[args.models[0]]
    on_device = {model: [*own, *device.train_flags()] for model, own in arguments.items()}
    measured = timing.measure_in_turns(on_device, reference, WARM_UP, args.steps, torch.get_num_threads())
    return timing.relative_seconds(args.models[0], {model: system.passes[0] for model, system in measured.items()})


def print_header(label: str, systems: Iterable[str]) -> None:
    """Print the first lines of a table."""
    columns = [label, *systems]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")


def print_row(label: str, speeds: timing.Speeds) -> None:
    """Print a row of a table."""
    print(f"| {label} | " + " | ".join(map(format_ratio, speeds.values())) + " |", flush=True)


def measure_groups(args: argparse.Namespace) -> dict[str, Any]:
    """Print the speed on each group of sentences and on all; return {"groups": of each group, "relative": of all}."""
    models = load_models(args)
    search = search_settings(args.dataset)
    translators = {name: make_translator(loaded, search, args.batch_size) for name, loaded in models.items()}
    if args.stock:
        translators = {"stock": make_stock_translator(models[args.models[0]], search, args.batch_size)} | translators
    baseline = next(iter(translators))
    print_header("source tokens", translators)
    sizes = models[args.models[0]].task.dataset("test").src_sizes
    groups, totals = [], dict.fromkeys(translators, np.zeros(args.repeats))
    for indices in groups_by_length(sizes.tolist(), args.sample):
        works = {name: partial(translate, indices) for name, translate in translators.items()}
        times = timing.alternating_times(works, args.repeats)
        totals = {name: totals[name] + times[name] for name in translators}
        relative = timing.relative_speeds(baseline, times)
        ends = {"shortest": int(sizes[indices].min()), "longest": int(sizes[indices].max())}
        groups.append({**ends, "relative": relative})
        print_row(f"{ends['shortest']}–{ends['longest']}", relative)
    overall = timing.relative_speeds(baseline, {name: total.tolist() for name, total in totals.items()})
    print_row("all", overall)
    return {"groups": groups, "relative": overall}


def main() -> None:
    """Measure, print the table and write the JSON file."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--models", nargs="+", required=True, metavar="MODEL", help="the first is the baseline")
    parser.add_argument("--batch-size", type=positive_integer, default=1, help="sentences at a time (default: 1)")
    parser.add_argument("--sample", type=positive_integer, default=8, help="sentences per group (default: 8)")
    parser.add_argument("--repeats", type=positive_integer, default=MIN_REPEATS, help="(default: %(default)s)")
    parser.add_argument("--steps", type=whole_number, default=0, help="timed training steps per model (default: 0)")
    parser.add_argument(
        "--stock", action="store_true", help="use fairseq's own Transformer, with softmax's weights, as baseline"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    prepare_fairseq_import()
    relumt.register()
    inputs, device, training_device = (
        describe_inputs(args),
        timing.benchmark_device("fp32"),
        timing.benchmark_device(None),
    )
    if timing.is_up_to_date(args.json, inputs, device):
        return
    results: dict[str, Any] = {"inputs": inputs}
    if args.steps:
        speeds = training_speeds(args, training_device)
        results["training"] = timing.describe(f"training, {args.steps} steps", args.models[0], training_device)
        results["training"]["relative"] = speeds
        print_header("", args.models)
        print_row("training", speeds)
        print()
    found = measure_groups(args)
    timing.print_origin()
    if args.json:
        baseline = next(iter(found["relative"]))
        what = f"decoding with beam {search_settings(args.dataset).beam}, {args.batch_size} at a time, "
        decoding = timing.describe(f"{what}{GROUPS * args.sample} sentences", baseline, device)
        results |= {"groups": found["groups"], "decoding": decoding | {"relative": found["relative"]}}
        timing.write_results(args.json, f"{what}{args.repeats} repeats", baseline, device, results)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
