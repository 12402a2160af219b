"""Measure decoding speed by source length ([RL] Fig. 2): beam search of trained models, alternating in one process.

    python benchmarks/decoding_speed.py RUNS DATASET --models softmax rela_g

The runs are the first seeds in RUNS/DATASET/MODEL. They translate with the settings in configs/datasets, but one
sentence at a time. The test sentences are split by length into ten groups of equal size. All models translate a sample
of each group several times, in alternating order. Reported is, for each group, the median of the first model's
time over each model's, with a 95% interval from six repeats on. Uses a GPU if there is one.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import (
    Speeds,
    alternating_times,
    benchmark_device,
    is_up_to_date,
    print_origin,
    relative_speeds,
    write_results,
)

from relumt.arguments import ArgumentParser, positive_integer
from relumt.errors import UserError, exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import
from relumt.papers.experiments import Experiment
from relumt.papers.runs import find_runs
from relumt.papers.speeds import MIN_REPEATS, format_ratio
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.runs.dataset_config import configs_folder, require_dataset
from relumt.runs.record import load_record

GROUPS = 10
CONFIGS = configs_folder(Path(__file__).resolve().parents[1]) / "datasets"


def groups_by_length(lengths: list[int], sample: int) -> list[list[int]]:
    """Return the indices of up to `sample` sentences from each of ten equal groups, from shortest to longest."""
    order = np.argsort(lengths, kind="stable")
    return [
        group[np.linspace(0, len(group) - 1, min(sample, len(group))).astype(int)].tolist()
        for group in np.array_split(order, GROUPS)
    ]


def generation_config(dataset: str) -> Any:
    """Return fairseq's settings of beam search from the dataset's file."""
    from fairseq.dataclass.configs import GenerationConfig

    flags = require_dataset(dataset, CONFIGS).generate
    values = {name: flags.get(f"--{name.replace('_', '-')}") for name in ("beam", "lenpen", "max_len_a", "max_len_b")}
    types = {"beam": int, "max_len_b": int}
    return GenerationConfig(**{name: types.get(name, float)(*value) for name, value in values.items() if value})


def make_translator(
    loaded: Any, config: Any, batch_size: int, generator_class: type | None = None
) -> Callable[[list[int]], None]:
    """Return a function that translates the test sentences with the given indices.

    Args:
        loaded: a model with its task.
        config: fairseq's settings of beam search.
        batch_size: sentences per batch.
        generator_class: fairseq's or relumt's beam search; None for the one that fairseq-generate uses.
    """
    generator = loaded.task.build_generator([loaded.model], config, generator_class)
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


def describe_inputs(args: argparse.Namespace) -> dict[str, Any]:
    """Return what results depend on besides the device and the revision, as JSON has it.

    The models are in the order of the command line, since the first one is the baseline.
    """
    records = {model: load_record(first_run(args.runs, args.dataset, model)) for model in args.models}
    return {
        "checkpoints": {model: record.test_evaluation.setup.checkpoint_sha256 for model, record in records.items()},
        "generate": require_dataset(args.dataset, CONFIGS).generate,
        "threads": torch.get_num_threads(),
        "settings": {name: value for name, value in vars(args).items() if name not in ("runs", "json")},
    }


def load_models(runs: Path, dataset: str, models: list[str]) -> dict[str, Any]:
    """Load the models and the test set for translation; the first model is the baseline."""
    from relumt.runs.inference.loaded_model import load_model

    loaded_models = {model: load_model(first_run(runs, dataset, model), None, cpu=False)[0] for model in models}
    for loaded in loaded_models.values():
        loaded.load_subset("test")
        loaded.model.make_generation_fast_()
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


def make_stock_translator(loaded: Any, config: Any, batch_size: int) -> Callable[[list[int]], None]:
    """Return a function that translates with the stock twin of a model as fairseq alone would.

    The search is fairseq's, and products have PyTorch's default precision, which relumt changes for the process.
    """
    from fairseq.sequence_generator import SequenceGenerator

    translate = make_translator(stock_twin(loaded), config, batch_size, SequenceGenerator)

    def translate_as_stock(indices: list[int]) -> None:
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            translate(indices)
        finally:
            torch.set_float32_matmul_precision(precision)

    return translate_as_stock


def decoding_speeds(translators: dict[str, Callable[[list[int]], None]], indices: list[int], repeats: int) -> Speeds:
    """Return the speed of each model on these sentences relative to the first one, see `relative_speeds`."""
    works = {name: partial(translate, indices) for name, translate in translators.items()}
    return relative_speeds(next(iter(translators)), alternating_times(works, repeats))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose runs and settings of translation."""
    parser.add_argument("runs", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--models", nargs="+", required=True, metavar="MODEL", help="the first is the baseline")
    parser.add_argument(
        "--batch-size", type=positive_integer, default=1, help="sentences per batch (default: 1, as [RL] Table 2)"
    )
    parser.add_argument("--sample", type=positive_integer, default=8, help="sentences per group (default: 8)")
    parser.add_argument(
        "--repeats", type=positive_integer, default=MIN_REPEATS, help="timed repeats (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")


def main() -> None:
    """Measure, print the table and write the JSON file."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument(
        "--stock", action="store_true", help="use fairseq's own Transformer, with softmax's weights, as baseline"
    )
    args = parser.parse_args()
    prepare_fairseq_import()
    inputs, device = describe_inputs(args), benchmark_device("fp32")
    if is_up_to_date(args.json, inputs, device):
        return
    models = load_models(args.runs, args.dataset, args.models)
    dataset = models[args.models[0]].task.dataset("test")
    config = generation_config(args.dataset)
    translators = {name: make_translator(loaded, config, args.batch_size) for name, loaded in models.items()}
    if args.stock:
        translators = {"stock": make_stock_translator(models[args.models[0]], config, args.batch_size)} | translators
    print("| source tokens | " + " | ".join(translators) + " |")
    print("|---|" + "---|" * len(translators))
    groups = []
    for indices in groups_by_length(dataset.src_sizes.tolist(), args.sample):
        relative = decoding_speeds(translators, indices, args.repeats)
        sizes = dataset.src_sizes[indices]
        groups.append({"shortest": int(sizes.min()), "longest": int(sizes.max()), "relative": relative})
        cells = map(format_ratio, relative.values())
        print(f"| {sizes.min()}–{sizes.max()} | " + " | ".join(cells) + " |", flush=True)
    print_origin()
    if args.json:
        what = f"decoding with beam {config.beam}, {args.batch_size} at a time, {args.repeats} repeats"
        write_results(args.json, what, next(iter(translators)), device, {"inputs": inputs, "groups": groups})


if __name__ == "__main__":
    with exit_on_user_error():
        main()
