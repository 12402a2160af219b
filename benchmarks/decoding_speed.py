"""Decoding speed by length of the source ([RL] Fig. 2): beam search of trained models, in turn, in one process.

    python benchmarks/decoding_speed.py RUNS DATASET --models softmax rela_g

The runs are RUNS/DATASET/MODEL, of each model the first seed, and translate as the dataset's file says, but a
sentence at a time. The sentences of a test set are put into ten equal groups by their length. Every model translates a
group's sample, one after the other, several times in changing order; reported is the median of the first model's time
over each model's, of each group, with a 95 % interval from 10,000 bootstrap samples. Runs on a GPU where there is one.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from timing import benchmark_device, is_up_to_date, relative_speeds, seconds, write_results

from relumt.checkpoints import load_checkpoint_safely
from relumt.console import quiet_fairseq
from relumt.errors import UserError, exit_on_user_error
from relumt.runs.dataset_config import require_dataset
from relumt.runs.record import load_record
from relumt.tables.experiments import Experiment
from relumt.tables.runs import find_runs
from relumt.tables.speeds import ratio

GROUPS = 10
CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "datasets"


def groups_by_length(lengths: list[int], sample: int) -> list[list[int]]:
    """Numbers of up to `sample` sentences of each of ten equal groups, from the shortest to the longest."""
    order = np.argsort(lengths, kind="stable")
    return [group[np.linspace(0, len(group) - 1, min(sample, len(group))).astype(int)].tolist()
            for group in np.array_split(order, GROUPS)]  # fmt: skip


def generation(dataset: str) -> Any:
    """fairseq's settings of beam search, as the dataset's file has them."""
    from fairseq.dataclass.configs import GenerationConfig

    flags = require_dataset(dataset, CONFIGS).generate
    given = {name: flags.get(f"--{name.replace('_', '-')}") for name in ("beam", "lenpen", "max_len_a", "max_len_b")}
    kinds = {"beam": int, "max_len_b": int}
    return GenerationConfig(**{name: kinds.get(name, float)(*value) for name, value in given.items() if value})


def translator(opened, config: Any, batch_size: int) -> Callable[[list[int]], None]:
    """A function that translates the sentences of the loaded subset with these numbers."""
    generator = opened.task.build_generator([opened.model], config)
    dataset = opened.task.dataset("test")

    def translate(numbers: list[int]) -> None:
        for start in range(0, len(numbers), batch_size):
            batch = dataset.collater([dataset[number] for number in numbers[start : start + batch_size]])
            opened.task.inference_step(generator, [opened.model], opened.to_device(batch))

    return translate


def first_run(runs: Path, dataset: str, model: str) -> Path:
    """The folder of a model's first seed that has scores; raises UserError if it has none."""
    found = [run for run in find_runs(Experiment(dataset, model), runs) if not run.diverged]
    if not found:
        raise UserError(f"{runs / dataset / model}: no scored run; make it with scripts/run.sh {dataset} {model}")
    return found[0].folder


def checkpoints_of(runs: Path, dataset: str, models: list[str]) -> dict[str, str]:
    """By model the SHA-256 of the checkpoint that is timed."""
    folders = {model: first_run(runs, dataset, model) for model in models}
    return {model: load_record(folder).test_evaluation.setup.checkpoint_sha256 for model, folder in folders.items()}


def open_runs(runs: Path, dataset: str, models: list[str]) -> dict[str, Any]:
    """The models, opened for translating the test set; the first is what the others are compared with."""
    from relumt.analysis.loaded_model import load_model

    found = {model: load_model(first_run(runs, dataset, model), None, cpu=False)[0] for model in models}
    for opened in found.values():
        opened.load_subset("test")
        opened.model.make_generation_fast_()
    return found


def with_stock(found: dict[str, Any]) -> dict[str, Any]:
    """The models after fairseq's own Transformer, which has the weights of the first of them; it is the baseline."""
    return {"stock": stock_twin(next(iter(found.values())))} | found


def stock_twin(opened: Any) -> Any:
    """fairseq's own Transformer with the weights of a model with softmax at every site, opened on the same data."""
    from fairseq.models.transformer import TransformerModel

    from relumt.attention.softmax import SoftmaxAttention
    from relumt.modules import MechanismAttention

    attentions = [module for module in opened.model.modules() if isinstance(module, MechanismAttention)]
    if not all(isinstance(module.mechanism, SoftmaxAttention) for module in attentions):
        raise UserError(f"--stock: {opened.path} is no model of softmax alone; name one first in --models")
    settings = load_checkpoint_safely(opened.path)["cfg"]["model"]
    model = TransformerModel.build_model(settings, opened.task)
    model.load_state_dict(opened.model.state_dict())
    model = model.eval().to(next(opened.model.parameters()).device)
    model.make_generation_fast_()
    return replace(opened, model=model)


def relative_times(translators: dict[str, Callable], numbers: list[int], repeats: int) -> dict[str, dict[str, float]]:
    """By model, the first one's time over its own on these sentences: median, and the interval's ends."""
    times: dict[str, list[float]] = {name: [] for name in translators}
    for repeat in range(repeats + 1):
        for name in list(translators)[:: 1 if repeat % 2 else -1]:
            taken = seconds(lambda name=name: translators[name](numbers))
            if repeat:  # the first warms up
                times[name].append(taken)
    return relative_speeds(next(iter(translators)), times)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, and how they translate."""
    parser.add_argument("runs", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--models", nargs="+", required=True, metavar="MODEL", help="the first is the baseline")
    parser.add_argument("--batch-size", type=int, default=1, help="sentences at a time, as [RL] Table 2 (default: 1)")
    parser.add_argument("--sample", type=int, default=8, help="sentences of each of ten groups by length (default: 8)")
    parser.add_argument("--repeats", type=int, default=5, help="(default: 5)")
    parser.add_argument("--json", type=Path, help="also write the figures here")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument(
        "--stock", action="store_true", help="compare with fairseq's own Transformer, of softmax's weights"
    )
    args = parser.parse_args()
    quiet_fairseq()
    checkpoints = checkpoints_of(args.runs, args.dataset, args.models)
    device = benchmark_device("fp32")
    if is_up_to_date(args.json, checkpoints, device):
        return
    found = open_runs(args.runs, args.dataset, args.models)
    if args.stock:
        found = with_stock(found)
    dataset = found[args.models[0]].task.dataset("test")
    config = generation(args.dataset)
    translators = {name: translator(of, config, args.batch_size) for name, of in found.items()}
    print("| source tokens | " + " | ".join(translators) + " |")
    print("|---|" + "---|" * len(translators))
    groups = []
    for numbers in groups_by_length(dataset.src_sizes.tolist(), args.sample):
        relative = relative_times(translators, numbers, args.repeats)
        sizes = dataset.src_sizes[numbers]
        groups.append({"shortest": int(sizes.min()), "longest": int(sizes.max()), "relative": relative})
        cells = map(ratio, relative.values())
        print(f"| {sizes.min()}–{sizes.max()} | " + " | ".join(cells) + " |", flush=True)
    if args.json:
        what = f"decoding with beam {config.beam}, {args.batch_size} at a time, {args.repeats} repeats"
        figures = {"checkpoints": checkpoints, "groups": groups}
        write_results(args.json, what, next(iter(found)), device, figures)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
