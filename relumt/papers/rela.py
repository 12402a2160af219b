"""[RL], Zhang, Titov and Sennrich 2021: its tables and figures, except for speeds (`speeds`)."""

import re

from relumt.analysis.record import CheckpointAnalysis
from relumt.papers.context import TableContext
from relumt.papers.experiments import ALIGNED, WMT_RELA, by_preset
from relumt.papers.figures import NullHeads, SiteFigure
from relumt.papers.measures import BLEU_DETOKENIZED, BLEU_TOKENIZED, Measure, analysis_measure, mean_over_layers
from relumt.papers.rendering import RenderedTable
from relumt.papers.score_table import (
    Column,
    ScoreTable,
    columns_on_one_corpus,
    columns_per_corpus,
    make_rows,
)
from relumt.papers.table import Table
from relumt.printed_results import papers


def aer(query: str, average: str) -> Measure:
    """Return the alignment error rate in percent, mean over layers, of [RL] Table 5: AoL or AoH, normal or shifted."""

    def value(analysis: CheckpointAnalysis) -> float | None:
        if analysis.alignment is None:
            return None
        return analysis.alignment.aol(query) if average == "AoL" else analysis.alignment.aoh(query)

    return analysis_measure(f"{query} {average}", value)


def head_diversity(site: str, temperature: str) -> Measure:
    """Return the Jensen-Shannon divergence between heads, mean over the layers of a site ([RL] Table 6)."""
    return analysis_measure(
        site,
        lambda analysis: mean_over_layers(layer.head_diversity.get(temperature) for layer in analysis.attentions(site)),
    )


def count_flops(H: int, d: int, T: int) -> dict[str, int]:
    """Return mechanism -> floating-point operations for T rows of T weights in H heads, [RL] Table 4.

    Projections and dot products cost the same for every mechanism and are not rows.
    """
    return {
        "softmax": 3 * H * T**2 - H * T,  # exponentials, sums and divisions
        "rela_g": H * T**2 + 10 * T * d + T,  # ReLU of every weight, then the gated RMSNorm of T outputs of size d
    }


FOUR_MODELS = make_rows("softmax", "sparsemax", "entmax15", "rela_g")

TEMPERATURES = {f"rela_g tau={tau:.2f}": str(tau) for tau in (1.0, 0.5, 0.25, 0.1)}
"""Row of [RL] Table 6 -> temperature of the softmax that renormalizes ReLA's weights."""


class FlopsTable(Table):
    """[RL] Table 4, for which nothing is trained: floating-point operations beside the paper's rounded ones."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        content = papers()[self.paper][self.item]
        header = ["", "formula", *(f"{source} {sizes}" for sizes in content["checks"] for source in ("[RL]", "ours"))]
        rows = []
        for row, formula in content["rows"].items():
            cells = [row, formula]
            for sizes, printed in content["checks"].items():
                ours = count_flops(*map(int, re.findall(r"=(\d+)", sizes)))  # "H=8 d=512 T=100"
                cells += [f"{printed[row]:,}", f"{ours[row]:,}"]
            rows.append(cells)
        return [RenderedTable(self.title, header, rows, [f"[RL]: {content['note']}"])]


TABLES: tuple[Table, ...] = (
    ScoreTable(
        "RL",
        "table1",
        rows=make_rows(
            *("softmax", "sparsemax", "entmax15"),
            {"relu alone": "rela_unnormalized", "relu + RMSNorm": "rela_rmsnorm"},
            *("rela_i", "rela_g"),
            {
                "rela_g with LayerNorm": "rela_g_layernorm",
                "rela_g with GELU": "rela_g_gelu",
                "rela_g with LeakyReLU": "rela_g_leaky_relu",
                "rela_g encoder only": "rela_g_encoder",
                "rela_g decoder only": "rela_g_decoder",
                "rela_g cross only": "rela_g_cross",
            },
        ),
        columns=columns_on_one_corpus(WMT_RELA, {"sacreBLEU": BLEU_DETOKENIZED, "tokenized BLEU": BLEU_TOKENIZED}),
        baseline="softmax",
    ),
    ScoreTable(
        "RL",
        "table3",
        rows=FOUR_MODELS,
        columns=columns_per_corpus(
            BLEU_DETOKENIZED,
            {
                "WMT14 En-Fr": "wmt14_en_fr",
                "WMT18 En-Fi": "wmt18_en_fi",
                "WMT18 Zh-En": "wmt18_zh_en",
                "WMT16 Ro-En": "wmt16_ro_en",
            },
        ),
        baseline="softmax",
    ),
    ScoreTable(
        "RL",
        "table5",
        rows=FOUR_MODELS,
        columns=[
            Column(ALIGNED, aer(query, average), f"{query} {average}")
            for query in ("normal", "shifted")
            for average in ("AoL", "AoH")
        ],
        needs_analysis=True,
        notes=(
            "AoL, AoH: alignment error rate of the heads' mean weights and of the best head, mean over layers, %",
            "the paper analyzes English-German models of three seeds (--seeds 1 2 3)",
        ),
    ),
    ScoreTable(
        "RL",
        "table6",
        rows=make_rows(
            *("softmax", "entmax15"),
            dict.fromkeys([*TEMPERATURES, "rela_g, α/Σα"], "rela_g"),
            {"reluformer, α/Σα": "reluformer"},
        ),
        columns=[
            Column(
                by_preset(WMT_RELA),
                head_diversity(site, "normalized"),
                site,
                {label: head_diversity(site, temperature) for label, temperature in TEMPERATURES.items()},
            )
            for site in ("encoder", "decoder", "cross")
        ],
        needs_analysis=True,
        notes=(
            "tau: weights as a softmax of α^τ, as in the paper; α/Σα: normalized weights; those of softmax and "
            "entmax15 sum to 1 as they are",
        ),
    ),
    FlopsTable("RL", "table4"),
    SiteFigure(
        "RL",
        "figure3",
        models=("sparsemax", "entmax15", "rela_g"),
        curves={"weights of 0": "sparsity"},
        axis_label="sparsity rate",
    ),
    SiteFigure(
        "RL",
        "figure4",
        models=("softmax", "sparsemax", "entmax15", "rela_g"),
        datasets=ALIGNED,
        curves={
            "normal, best head": "alignment.normal.best_head",
            "normal, mean weights": "alignment.normal.mean_weights",
            "shifted, best head": "alignment.shifted.best_head",
            "shifted, mean weights": "alignment.shifted.mean_weights",
        },
        axis_label="alignment error rate (%)",
        sites=("cross",),
    ),
    SiteFigure(
        "RL",
        "figure5",
        models=("softmax", "entmax15", "rela_g", "reluformer"),
        curves={"softmax of α": "rela_diversity", "α/Σα": "normalized_diversity"},
        axis_label="head diversity",
        explanation="Jensen–Shannon divergence of the heads' weights α as distributions; softmax of α: as in the "
        "paper, only of weights that do not sum to 1; nearly uniform for weights as small as reluformer's",
    ),
    SiteFigure(
        "RL",
        "figure6",
        models=("rela_g",),
        curves={
            "null rate": "null_rate",
            "targets shuffled": "null_rate_shuffled",
            "variance over heads": "null_rate_variance",
        },
        axis_label="null rate",
    ),
    NullHeads("RL", "figure7"),
)
