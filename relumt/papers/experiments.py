"""Experiments, the runs that tables are made of, and the datasets that each preset trains them on."""

from dataclasses import dataclass
from pathlib import Path

PRESETS = {
    "paper": "the paper's corpora and model sizes, for GPUs",
    "small": "real text and small models, 8 to 21 minutes per run on one CPU core; the study: 40 to 110 minutes",
    "smoke": "the generated corpus, seconds per run: shows that the code works; the scores mean nothing",
}

IWSLT, WMT, WMT_RELA = "iwslt14_de_en", "wmt14_en_de", "wmt14_en_de_rela"
SMALL, SMOKE = "multi30k_de_en_small", "smoke"
SMOKE_DOCUMENTS = "smoke_documents"

ALIGNED = {"paper": "wmt14_en_de_aligned", "small": "europarl7_en_de_aligned", "smoke": SMOKE}
"""Preset -> dataset whose test set has gold word alignments; English to German, as in [RL] Table 5."""

DOCUMENTS: dict[str, dict[str, str]] = {
    "128": {"paper": "europarl7_en_de_128", "small": "europarl7_small_128", "smoke": SMOKE_DOCUMENTS},
    "256": {"paper": "europarl7_en_de_256", "small": "europarl7_small_256"},
    "512": {"paper": "europarl7_en_de_512", "small": "europarl7_small_512"},
    "1024": {"paper": "europarl7_en_de_1024"},
    "2048": {"paper": "europarl7_en_de_2048"},
}
"""Limit of the document length in tokens -> preset -> dataset."""


def by_preset(dataset: str) -> dict[str, str]:
    """Return preset -> dataset: the paper's, and the small ones that stand in for every sentence-level corpus."""
    return {"paper": dataset, "small": SMALL, "smoke": SMOKE}


@dataclass(frozen=True)
class Experiment:
    """A model trained on a dataset, with one run per seed.

    Attributes:
        dataset, model: names in configs/.
        variant: subfolder of the folder of all runs, for runs with flags beyond those of configs/; "" for none.
        flags: those flags of fairseq-train.
        needs_analysis: whether the table shows measures from analysis.json.
    """

    dataset: str
    model: str
    variant: str = ""
    flags: tuple[str, ...] = ()
    needs_analysis: bool = False

    @property
    def script(self) -> str:
        """The script in scripts/ that makes all of its results."""
        return "analyze.sh" if self.needs_analysis else "run.sh"

    def variant_folder(self, runs: Path) -> Path:
        """Return the value of RUNS for the scripts that execute its runs; `runs` is the folder of all runs."""
        return runs / self.variant

    def model_folder(self, runs: Path) -> Path:
        """Return the folder that has one folder per seed."""
        return self.variant_folder(runs) / self.dataset / self.model

    def folder(self, runs: Path, seed: int) -> Path:
        """Return the folder of the run with a seed."""
        return self.model_folder(runs) / str(seed)
