"""Speeds relative to softmax ([RL] Table 2 and Figure 2, the last column of [RF] Table 4), measured by benchmarks/.

They are read from RUNS/TABLE-DATASET.json, which `benchmarks/train_decode_speed.py` and
`benchmarks/decoding_speed.py` write; `scripts/reproduce.sh` runs these.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relumt.errors import UserError
from relumt.papers import papers, title
from relumt.tables.context import TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import find_runs
from relumt.tables.score_table import ScoreTable
from relumt.tables.scores import RF_TABLE4, WMT_RELA, Row, by_preset

KINDS = ("training", "decoding")


def figures_of(context: TableContext, dataset: str) -> Path:
    """Where the benchmark of a table's models leaves its figures."""
    return context.runs / f"{context.name}-{dataset}.json"


def measured(path: Path, context: TableContext) -> dict[str, Any]:
    """What a benchmark wrote; raises UserError if it did not."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {context.command} measures speeds") from None
    except ValueError as error:
        raise UserError(f"{path}: not a benchmark's figures ({error}); delete it and run {context.command}") from None


def ratio(of: dict[str, float] | None) -> str:
    """A median with its 95 % interval; nothing where it was not measured."""
    return "" if of is None else f"{of['median']:.2f} ({of['low']:.2f}–{of['high']:.2f})"


def how(kind: dict[str, Any]) -> str:
    """How a speed was measured."""
    return f"{kind['what']}, relative to {kind['baseline']}, on {kind['device']}; median and 95 % interval"


@dataclass(frozen=True)
class Efficiency:
    """[RL] Table 2: parameters and both speeds."""

    rows: tuple[str, ...] = ("softmax", "sparsemax", "entmax15", "rela_g")

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return title("RL", "table2")

    def dataset(self, preset: str) -> str:
        """Whose runs are timed."""
        return by_preset(WMT_RELA)[preset]

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return [Experiment(self.dataset(preset), model) for model in self.rows]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """A row a model. Raises UserError where there are no runs or speeds."""
        found = {cell.model: find_runs(cell, context.runs) for cell in self.experiments(context.preset)}
        context.require_any(dict(zip(self.experiments(context.preset), found.values(), strict=True)))
        speeds = measured(figures_of(context, self.dataset(context.preset)), context)
        of_paper = papers()["RL"]["table2"]["rows"]
        rows = []
        for model, runs in found.items():
            sizes = [run.record.training.parameters for run in runs if run.record.training]
            parameters = f"{sizes[0] / 1e6:.2f}" if sizes else ""
            theirs = [f"{value:.2f}" for value in of_paper[model]]
            ours = [parameters, *(ratio(speeds[kind]["relative"].get(model)) for kind in KINDS)]
            rows.append([model, *(cell for pair in zip(theirs, ours, strict=True) for cell in pair)])
        head = [f"{whose} {what}" for what in papers()["RL"]["table2"]["columns"] for whose in ("[RL]", "our")]
        notes = [
            f"{context.of_preset}; {self.dataset(context.preset)}",
            *(f"{kind}: {how(speeds[kind])}" for kind in KINDS),
            f"[RL]: {papers()['RL']['table2']['note']}",
        ]
        return [RenderedTable(context.caption(self.title), ["", *head], rows, notes)]


@dataclass(frozen=True)
class WithDecodingSpeed:
    """A table of scores with a second sheet of decoding speeds."""

    scores: ScoreTable

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return self.scores.title

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return self.scores.experiments(preset)

    def render(self, context: TableContext) -> list[RenderedTable]:
        """Both sheets; the second only where speeds were measured."""
        sheets = self.scores.render(context)
        for dataset in dict.fromkeys(column.dataset for column in self.scores.columns[context.preset]):
            path = figures_of(context, dataset)
            if path.is_file():
                sheets.append(self.speeds(self.scores.rows, dataset, measured(path, context)["decoding"]))
        return sheets

    def speeds(self, rows: Sequence[Row], dataset: str, decoding: dict[str, Any]) -> RenderedTable:
        """Decoding speed, the paper's and ours."""
        of_paper = papers()[self.scores.paper][self.scores.table]
        (column,) = (n for n, name in enumerate(of_paper["columns"]) if name.startswith("decoding speed"))
        cells = [
            [row.printed, f"{of_paper['rows'][row.printed][column]:.2f}", ratio(decoding["relative"].get(row.model))]
            for row in rows
        ]
        head = ["", f"[{self.scores.paper}] {of_paper['columns'][column]}", f"ours, {dataset}"]
        return RenderedTable(f"decoding speed; {dataset}", head, cells, [how(decoding)])


@dataclass(frozen=True)
class SpeedByLength:
    """[RL] Figure 2: decoding speed by the length of the source, ten equal groups."""

    models: tuple[str, ...] = ("softmax", "sparsemax", "entmax15", "rela_g")

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return title("RL", "figure2")

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return [Experiment(Efficiency().dataset(preset), model) for model in self.models]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """A row a group; and the plot. Raises UserError where nothing was measured."""
        dataset = Efficiency().dataset(context.preset)
        of = measured(figures_of(context, dataset), context)
        names = list(of["groups"][0]["relative"])
        rows = [
            [f"{group['shortest']}–{group['longest']}", *(ratio(group["relative"][name]) for name in names)]
            for group in of["groups"]
        ]
        notes = [
            f"{context.of_preset}; {dataset}",
            how(of),
            f"the paper: {papers()['RL']['figures']['figure2']['text']}",
            self.plot(of, names, context),
        ]
        return [RenderedTable(context.caption(self.title), ["source tokens", *names], rows, notes)]

    def plot(self, of: dict[str, Any], names: Sequence[str], context: TableContext) -> str:
        """Write the plot; returns where it is."""
        from relumt.analysis.plots import Figure

        figure = Figure(figsize=(6, 4), layout="constrained")
        ax, groups = figure.subplots(), of["groups"]
        lengths = [(group["shortest"] + group["longest"]) / 2 for group in groups]
        for name in names:
            median, low, high = (
                [group["relative"][name][end] for group in groups] for end in ("median", "low", "high")
            )
            ax.plot(lengths, median, marker="o", label=name)
            ax.fill_between(lengths, low, high, alpha=0.15)
        ax.set(xlabel="source tokens", ylabel=f"decoding speed relative to {of['baseline']}")
        ax.legend()
        return context.plotted(figure)


RF_TABLE4_WITH_SPEED = WithDecodingSpeed(RF_TABLE4)
RL_TABLE2 = Efficiency()
RL_FIGURE2 = SpeedByLength()
