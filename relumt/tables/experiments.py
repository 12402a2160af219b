"""What a table is made of: cells, each a model trained on a dataset, once a seed, and the presets of their datasets."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PRESETS = {
    "paper": "the paper's corpora and sizes, for GPUs",
    "small": "real text, small models, some 15 minutes a run on 2 CPU cores",
    "smoke": "the generated corpus, seconds a run: shows that a script works, and nothing else",
}


@dataclass(frozen=True)
class Experiment:
    """A run of every seed.

    Attributes:
        dataset, model: names in configs/.
        variant: folder below that of the runs, for runs whose flags are not those of configs/.
        flags: further flags of fairseq-train.
        analysed: the table needs its analysis.json.
    """

    dataset: str
    model: str
    variant: str = ""
    flags: tuple[str, ...] = ()
    needs_analysis: bool = False

    def variant_folder(self, runs: Path) -> Path:
        """The folder of runs that its runs are in, RUNS of the scripts."""
        return runs / self.variant

    def folder(self, runs: Path, seed: int) -> Path:
        """Of its run with this seed."""
        return self.seeds_folder(runs) / str(seed)

    def seeds_folder(self, runs: Path) -> Path:
        """Whose folders are the seeds."""
        return self.variant_folder(runs) / self.dataset / self.model

    def script(self) -> str:
        """What makes its runs, in scripts/."""
        return "analyze.sh" if self.needs_analysis else "run.sh"

    def arguments(self, further: Sequence[str] = ()) -> list[str]:
        """Of the script."""
        return [self.dataset, self.model, *self.flags, *further]


def unique_experiments(cells: Sequence[Experiment]) -> list[Experiment]:
    """The cells in their order, each run once: with its analysis if anywhere it is needed."""
    found: dict[tuple[str, str, str], Experiment] = {}
    for cell in cells:
        key = (cell.variant, cell.dataset, cell.model)
        if key not in found or cell.needs_analysis:
            found[key] = cell
    return list(found.values())
