"""[RF] Figure 4: how much of the attention is on the top p % of the keys, by p."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from relumt.errors import UserError
from relumt.runs.analysis_record import CheckpointAnalysis, mean_over_heads
from relumt.tables.context import TableContext
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import Run, any_diverged
from relumt.tables.site_figure import SiteFigure
from relumt.tables.site_panels import make_panels

PERCENTAGES = tuple(f"{tenths / 10:g}" for tenths in range(1, 16))
"""The percentages that the paper draws, 0.1 to 1.5."""


@dataclass(frozen=True, kw_only=True)
class TopShareFigure(SiteFigure):
    """The share of the weight on the top p % of the visible keys: one panel per site, one curve per model."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table; one row per model and site, one column per percentage."""
        found = self.analyzed_runs(context)
        shares = {
            (experiment.model, site): mean_shares
            for experiment, runs in found.items()
            if not any_diverged(runs)
            for site in self.sites
            if (mean_shares := mean_over_runs(runs, site))
        }
        if not shares:
            raise UserError(f"{context.runs}: no run has an analysis with shares of the weight; run {context.command}")
        rows = [[*key, *map("{:.3f}".format, mean_shares)] for key, mean_shares in shares.items()]
        notes = [
            f"{context.preset_note}; means over heads and layers",
            *self.run_notes(found, context),
            "shares are interpolated between whole numbers of keys",
            self.figure_note,
            self.plot(shares, context),
        ]
        header = ["model", "site", *(f"top {p}%" for p in PERCENTAGES)]
        return [RenderedTable(context.caption(self.title), header, rows, notes)]

    def plot(self, shares: Mapping[tuple[str, str], Sequence[float]], context: TableContext) -> str:
        """Write the plot; return the note that says where."""
        panels = make_panels(self.sites)
        for (model, site), mean_shares in shares.items():
            panels.draw(site, model, list(map(float, PERCENTAGES)), mean_shares, f"C{self.models.index(model)}")
        return context.save_plot(panels.finish("Top p % of the visible keys", "Share of the weight"))


def mean_over_runs(runs: Sequence[Run], site: str) -> list[float]:
    """Return the mean share over seeds at each of PERCENTAGES; nothing if a run has no shares."""
    by_run = [mean_over_layers_and_heads(run.analysis, site) for run in runs if run.analysis]
    return [mean(shares) for shares in zip(*by_run, strict=True)] if all(by_run) else []


def mean_over_layers_and_heads(analysis: CheckpointAnalysis, site: str) -> list[float]:
    """Return the share at each of PERCENTAGES, without heads that have none; nothing if no head has any."""
    layers = [layer.top_share for layer in analysis.attentions(site) if layer.top_share]
    shares = [mean_over_heads([mean_over_heads(layer.get(p)) for layer in layers]) for p in PERCENTAGES]
    known = [share for share in shares if share is not None]
    return known if len(known) == len(PERCENTAGES) else []
