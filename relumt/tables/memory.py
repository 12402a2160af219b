"""[RF] §3: feed-forward layers as memories. Table 1 and Figures 1–3, from runs of `configs/models/ffn_*`.

Every run counts that lies anywhere below the folder of the runs, is evaluated and has an analysis.json beside its
run.json. The number of slots is the one that it was trained with.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from relumt.analysis.command import ANALYSIS, SCHEMA
from relumt.errors import UserError
from relumt.papers import papers, printed
from relumt.runs.record import RECORD, load_record
from relumt.runs.table import SCORES, SUBSET, average, evaluated, markdown_row, require_equal, score, signature

PREFIX = "ffn_"
NAMES = {"ffn_relu": "relu", "ffn_softmax": "softmax", "ffn_softmax_ln": "softmax_ln"}
"""Model → its row in [RF] Table 1."""

VARIED = ("--seed", "--feedforward", "--gated-equal-parameters", "--encoder-ffn-embed-dim", "--decoder-ffn-embed-dim")

SPEED = "speed-{}.json"
"""What `benchmarks/training.py --json` left in the folder of the runs, by dataset."""

BLEU = "bleu_tokenised"
COLOURS = {"ffn_relu": "C0", "ffn_softmax": "C1", "ffn_softmax_ln": "C2"}


@dataclass(frozen=True)
class Run:
    """A run and what its feed-forward layers did on the test set, by layer."""

    record: dict[str, Any]
    layers: dict[str, dict[str, Any]]

    @property
    def model(self) -> str:
        """Its name in configs/models."""
        return self.record["model"]

    def key(self) -> tuple[str, int, int]:
        """What tells it from others: model, slots, seed."""
        return self.model, self.slots, self.record["seed"]

    @property
    def slots(self) -> int:
        """Of each memory, as asked for."""
        return int(self.record["fingerprint"]["flags"]["--encoder-ffn-embed-dim"])

    def variance_ratio(self, side: str) -> float:
        """Of output and residual, the mean over the layers of a side, "encoder" or "decoder"; of all if it is ""."""
        return mean(layer["variance_ratio"] for name, layer in self.layers.items() if name.startswith(side))

    def mean(self, of: Callable[[dict[str, Any]], float | None]) -> float | None:
        """The mean of a measure over layers; None if any layer has none."""
        values = [of(layer) for layer in self.layers.values()]
        return None if None in values else mean(values)


def analysed_runs(runs: Path, dataset: str | None) -> list[Run]:
    """The runs of a dataset, or of all, by model and number of slots.

    Raises:
        UserError: there is none, an analysis is of another checkpoint, or two do not compare.
    """
    found = []
    for path in sorted(runs.rglob(RECORD)):
        record = load_record(path.parent)
        analysis = path.with_name(ANALYSIS)
        wanted = record["model"].startswith(PREFIX) and dataset in (None, record["dataset"])
        if wanted and SUBSET in record.get("evaluation", {}) and analysis.is_file():
            found.append(Run(record, layers_of(analysis, record)))
    if not found:
        raise UserError(f"{runs}: no analysed run of {PREFIX}*; make them with scripts/tables/reluformer_table1.sh")
    records = [run.record for run in found]
    require_equal(records, "the dataset", lambda record: record["dataset"])
    require_equal(records, "the test set (references)", lambda record: evaluated(record)["references_sha256"])
    require_equal(records, "the signature of BLEU", lambda record: signature(record, BLEU))
    require_equal(records, "the flags of training", common_flags)
    require_equal(records, "the flags of translation", lambda record: evaluated(record)["flags"])
    for run, again in pairwise(sorted(found, key=Run.key)):
        if run.key() == again.key():
            raise UserError(f"{runs}: {run.model} with {run.slots} slots and seed {run.record['seed']} is there twice")
    return sorted(found, key=Run.key)


def common_flags(record: dict[str, Any]) -> dict[str, str]:
    """The flags of training but those that the runs are there to vary."""
    return {flag: value for flag, value in record["fingerprint"]["flags"].items() if flag not in VARIED}


def layers_of(path: Path, record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The feed-forward layers in an analysis.json; raises UserError if it is not of what was scored."""
    of_file = json.loads(path.read_text(encoding="utf-8"))
    analysis, *others = of_file["checkpoints"]
    if others or of_file["schema"] != SCHEMA or of_file["subset"] != SUBSET:
        raise UserError(f"{path}: not of this run's test set alone; delete it and run relumt analyze again")
    if analysis["sha256"] != evaluated(record)["checkpoint_sha256"]:
        raise UserError(f"{path}: of another checkpoint than the scores; delete it and run relumt analyze again")
    return analysis["feedforward"]


def anisotropy(layer: dict[str, Any]) -> float:
    """Of the value slots."""
    return layer["anisotropy"]


def table1(runs: Path, _: Path, dataset: str | None) -> str:
    """BLEU and variance ratio by model and slots, [RF]'s figures above; below, the speed of every variant."""
    found = analysed_runs(runs, dataset)
    head = ("model", "slots", "seeds", SCORES[BLEU], "variance ratio", "encoder", "decoder")
    lines = [markdown_row(head), markdown_row(["---"] + ["---:"] * (len(head) - 1))]
    settings = papers()["RF"]["settings"]["iwslt14_de_en"]
    for row in NAMES.values():
        of_paper = printed("RF", "table1", row)
        lines.append(markdown_row([f"[RF], IWSLT14: {row}", settings["ffn"], "", *of_paper.values(), "", ""]))
    for (model, slots), group in grouped(found).items():
        sides = [average([run.variance_ratio(side) for run in group], ".3f") for side in ("", "encoder", "decoder")]
        bleu = average([score(run.record, BLEU) for run in group], ".2f")
        lines.append(markdown_row([model, slots, seeds(group), bleu, *sides]))
    return "\n".join([*lines, "", *notes(found), "", *speeds(runs / SPEED.format(found[0].record["dataset"]))])


def speeds(path: Path) -> list[str]:
    """A table of training throughput, or where to get one."""
    if not path.is_file():
        return [f"No speeds: there is no {path}; scripts/tables/reluformer_table1.sh measures them."]
    measured = json.loads(path.read_text(encoding="utf-8"))
    lines = [f"| model | training tokens/s relative to {measured['baseline']} | 95 % interval |", "|---|---:|---:|"]
    for name, of in measured["throughput"].items():
        lines.append(f"| {name} | {of['median']:.2f} | {of['low']:.2f}–{of['high']:.2f} |")
    return lines


def figure1(runs: Path, out: Path, dataset: str | None) -> str:
    """BLEU by the number of slots."""
    found = analysed_runs(runs, dataset)
    return by_slots(found, out, "reluformer_figure1", "BLEU (tokenised)", lambda run: score(run.record, BLEU), ".2f")


def figure3(runs: Path, out: Path, dataset: str | None) -> str:
    """Anisotropy of the value slots by their number, mean over layers."""
    found = analysed_runs(runs, dataset)
    return by_slots(found, out, "reluformer_figure3", "anisotropy", lambda run: run.mean(anisotropy), ".4f")


def by_slots(found: list[Run], out: Path, name: str, what: str, of: Callable[[Run], float], form: str) -> str:
    """A table of a measure by model and slots, and its plot."""
    from relumt.analysis.plots import Figure, save

    widths = sorted({run.slots for run in found})
    figure = Figure(figsize=(6, 4), layout="constrained")
    ax = figure.subplots()
    lines = [markdown_row([what, *widths]), markdown_row(["---"] + ["---:"] * len(widths))]
    groups = grouped(found)
    for model in sorted({run.model for run in found}):
        measured = {slots: [of(run) for run in groups[model, slots]] for slots in widths if (model, slots) in groups}
        cells = [average(measured[slots], form) if slots in measured else "" for slots in widths]
        lines.append(markdown_row([model, *cells]))
        ax.plot(list(measured), [mean(x) for x in measured.values()], marker="o", label=model, color=COLOURS.get(model))
    ax.set_xscale("log", base=2)
    ax.set(xlabel="memory slots", ylabel=what)
    ax.legend()
    save(figure, out, name)
    return "\n".join([*lines, "", *notes(found), f"- plot: {out / name}.png, .svg"])


def figure2(runs: Path, out: Path, dataset: str | None) -> str:
    """Share of the score that the top p % of slots hold, mean over layers; a panel a model, a line a memory size."""
    from relumt.analysis.plots import Figure, save

    found = [run for run in analysed_runs(runs, dataset) if all(layer["top_share"] for layer in run.layers.values())]
    if not found:
        raise UserError(f"{runs}: no run whose scores are never negative, so no shares of a sum to show")
    percents = list(next(iter(found[0].layers.values()))["top_share"])
    groups = grouped(found)
    models = sorted({run.model for run in found})
    figure = Figure(figsize=(4 * len(models), 3.6), layout="constrained")
    panels = dict(zip(models, figure.subplots(1, len(models), sharey=True, squeeze=False)[0], strict=True))
    head = ["model", "slots", *(f"top {p} %" for p in percents)]
    lines = [markdown_row(head), markdown_row(["---"] + ["---:"] * (len(head) - 1))]
    for (model, slots), group in groups.items():
        shares = [[run.mean(lambda layer, p=p: layer["top_share"][p]) for run in group] for p in percents]
        lines.append(markdown_row([model, slots, *(average(share, ".3f") for share in shares)]))
        panels[model].plot([float(p) for p in percents], [mean(share) for share in shares], marker=".", label=slots)
    for model, ax in panels.items():
        ax.set(title=model, xlabel="top p % of slots", xscale="log")
        ax.legend(title="slots", fontsize=7)
    panels[models[0]].set_ylabel("share of the score")
    save(figure, out, "reluformer_figure2")
    return "\n".join([*lines, "", *notes(found), f"- plot: {out / 'reluformer_figure2'}.png, .svg"])


def grouped(runs: Iterable[Run]) -> dict[tuple[str, int], list[Run]]:
    """The runs by model and slots, seeds together."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.model, run.slots), []).append(run)
    return groups


def seeds(runs: Iterable[Run]) -> str:
    """The seeds of the runs."""
    return ", ".join(str(run.record["seed"]) for run in runs)


def notes(runs: list[Run]) -> list[str]:
    """What stands below a table."""
    record = runs[0].record
    return [
        f"- {record['dataset']}, test; seeds {', '.join(sorted({str(run.record['seed']) for run in runs}))}; "
        "measures are means over layers",
        f"- {SCORES[BLEU]}: `{signature(record, BLEU)}`",
    ]
