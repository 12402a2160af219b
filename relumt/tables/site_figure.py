"""The base class of figures of attention by site."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from relumt.tables.context import Runs, TableContext
from relumt.tables.experiments import WMT_RELA, Experiment, by_preset
from relumt.tables.measures import BLEU_TOKENIZED, DIVERGED, unit_note
from relumt.tables.runs import any_diverged, require_comparable
from relumt.tables.site_panels import SITE_TITLES
from relumt.tables.table import Table


@dataclass(frozen=True, kw_only=True)
class SiteFigure(Table):
    """A figure of what models attend to, one panel per site.

    Attributes:
        models: names in configs/models.toml.
        sites: attention sites to draw.
        datasets: preset -> dataset.
    """

    models: tuple[str, ...]
    sites: tuple[str, ...] = tuple(SITE_TITLES)
    datasets: Mapping[str, str] = field(default_factory=lambda: by_preset(WMT_RELA))

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [Experiment(self.datasets[preset], model, needs_analysis=True) for model in self.models]

    def analyzed_runs(self, context: TableContext) -> Runs:
        """Return the analyzed runs; raises UserError if they cannot be compared."""
        found = context.analyzed_runs(context.find_runs(self.experiments(context.preset)))
        require_comparable(chain(*found.values()), BLEU_TOKENIZED.metric)
        return found

    def run_notes(self, found: Runs, context: TableContext) -> list[str]:
        """Return the notes about the runs: how they were made, which diverged, and the unit of attention."""
        all_runs = list(chain(*found.values()))
        return [
            *context.notes(self.datasets[context.preset], all_runs),
            *(f"{experiment.model}: {DIVERGED}" for experiment, runs in found.items() if any_diverged(runs)),
            *unit_note(all_runs),
        ]
