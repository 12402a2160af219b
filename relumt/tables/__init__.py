"""The tables and figures of the papers, made from runs. [RF] is Shen et al. 2023, [RL] Zhang et al. 2021.

A table declares which runs it needs (`experiments`) and renders those that are finished (`render`). `relumt grid` makes
missing runs, `relumt table` prints a table, and `scripts/reproduce.sh` does both.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from relumt.errors import UserError

if TYPE_CHECKING:
    from relumt.tables.context import TableContext
    from relumt.tables.experiments import Experiment
    from relumt.tables.rendering import RenderedTable


class Table(Protocol):
    """A table or figure of a paper."""

    @property
    def title(self) -> str:
        """Its number in the paper and what it shows, in one line."""

    def experiments(self, preset: str) -> list["Experiment"]:
        """Return the experiments whose runs it needs."""

    def render(self, context: "TableContext") -> list["RenderedTable"]:
        """Return tables of the finished runs; a figure also writes its plot.

        Raises:
            UserError: no run is finished, or the runs cannot be compared.
        """


@dataclass(frozen=True)
class TableEntry:
    """A table by its name on the command line.

    Attributes:
        location: where it is declared, MODULE:NAME in this package.
        summary: its number in the paper and what it compares, for `--help`.
        speed_benchmark: script in benchmarks/ that measures the speed of its models, "" for none.
        report_sentences: how many sentences its HTML report shows attention maps of, 0 for no report.
    """

    location: str
    summary: str
    speed_benchmark: str = ""
    report_sentences: int = 0


TABLES = {
    "reluformer_table1": TableEntry(
        "ffn_table:TABLE1",
        "[RF] Table 1: BLEU, output variance and training speed of feed-forward variants",
        speed_benchmark="training_speed.py",
    ),
    "reluformer_table2": TableEntry(
        "scores:RF_TABLE2", "[RF] Table 2: BLEU with ReLU instead of softmax, with and without the scale factor"
    ),
    "reluformer_table3": TableEntry("scores:RF_TABLE3", "[RF] Table 3: entropy of the attention of softmax and ReLU"),
    "reluformer_table4": TableEntry(
        "speeds:RF_TABLE4_WITH_SPEED",
        "[RF] Table 4: BLEU on IWSLT14 and WMT14, and decoding speed, of five attentions",
        speed_benchmark="train_decode_speed.py",
    ),
    "reluformer_table5": TableEntry(
        "scores:RF_TABLE5", "[RF] Table 5: BLEU and entropy of ReLUFormer without scale factor or regularizer"
    ),
    "reluformer_table6": TableEntry(
        "scores:RF_TABLE6", "[RF] Table 6: document BLEU on Europarl7 by document length limit"
    ),
    "reluformer_figure1": TableEntry("ffn_table:FIGURE1", "[RF] Figure 1: BLEU by number of memory slots"),
    "reluformer_figure2": TableEntry("ffn_table:FIGURE2", "[RF] Figure 2: share of the score of the top p % of slots"),
    "reluformer_figure3": TableEntry(
        "ffn_table:FIGURE3", "[RF] Figure 3: anisotropy of the value slots by their number"
    ),
    "reluformer_figure4": TableEntry(
        "figures:RF_FIGURE4", "[RF] Figure 4: share of self-attention of the top p % of keys, on documents"
    ),
    "reluformer_figure5": TableEntry(
        "figures:RF_FIGURE5",
        "[RF] Figure 5: maps of self-attention on documents, and its long-range share",
        report_sentences=2,
    ),
    "reluformer_sweep": TableEntry(
        "sweep:SWEEP", "gamma, lambda_1 and lambda_2 of ReLUFormer, which [RF] does not print: validation loss and BLEU"
    ),
    "rela_table1": TableEntry("scores:RL_TABLE1", "[RL] Table 1: BLEU of ReLA and its ablations"),
    "rela_table2": TableEntry(
        "speeds:RL_TABLE2",
        "[RL] Table 2: parameters, training and decoding speed of four attentions",
        speed_benchmark="train_decode_speed.py",
    ),
    "rela_table3": TableEntry("scores:RL_TABLE3", "[RL] Table 3: BLEU of four attentions on four language pairs"),
    "rela_table4": TableEntry(
        "flops:RL_TABLE4", "[RL] Table 4: floating-point operations of softmax and ReLA-g; trains nothing"
    ),
    "rela_table5": TableEntry("scores:RL_TABLE5", "[RL] Table 5: alignment error rate of four attentions"),
    "rela_table6": TableEntry("scores:RL_TABLE6", "[RL] Table 6: head diversity of softmax, 1.5-entmax and ReLA-g"),
    "rela_figure2": TableEntry(
        "speeds:RL_FIGURE2", "[RL] Figure 2: decoding speed by source length", speed_benchmark="decoding_speed.py"
    ),
    "rela_figure3": TableEntry("figures:RL_FIGURE3", "[RL] Figure 3: sparsity by layer"),
    "rela_figure4": TableEntry(
        "figures:RL_FIGURE4", "[RL] Figure 4: alignment error rate by layer, best head and all heads"
    ),
    "rela_figure5": TableEntry("figures:RL_FIGURE5", "[RL] Figure 5: head diversity by layer"),
    "rela_figure6": TableEntry("figures:RL_FIGURE6", "[RL] Figure 6: null rate by layer, also with shuffled targets"),
    "rela_figure7": TableEntry(
        "figures:RL_FIGURE7", "[RL] Figure 7: null rate of ReLA-g by head, and attention maps", report_sentences=10
    ),
}
"""Name on the command line -> table."""


def require_table(name: str) -> TableEntry:
    """Return the entry of a table; raise UserError if there is none of that name."""
    if name not in TABLES:
        raise UserError(f"no table '{name}'; known: {', '.join(TABLES)}")
    return TABLES[name]


def get_table(name: str) -> Table:
    """Import and return the table or figure of that name; raise UserError if there is none."""
    module, _, attribute = require_table(name).location.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
