"""[RL] Table 4: floating-point operations of activation and norm, for which nothing is trained."""

import re
from dataclasses import dataclass

from relumt.metrics.flops import rela_g_flops, softmax_flops
from relumt.papers import papers, title
from relumt.tables.context import TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.rendering import RenderedTable

SIZES = re.compile(r"H=(\d+) d=(\d+) T=(\d+)")


@dataclass(frozen=True)
class Operations:
    """[RL] Table 4, with the numbers that the paper prints, rounded, for two lengths."""

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return title("RL", "table4")

    def experiments(self, _: str) -> list[Experiment]:
        """None."""
        return []

    def render(self, _: TableContext) -> list[RenderedTable]:
        """A row a mechanism: its formula, the paper's numbers and ours."""
        table = papers()["RL"]["table4"]
        sizes = {name: tuple(map(int, SIZES.fullmatch(name).groups())) for name in table["checks"]}
        head = ["", "formula", *(f"{whose} {name}" for name in sizes for whose in ("[RL]", "ours"))]
        rows = []
        for row, formula in table["rows"].items():
            cells = [row, formula]
            for name, (H, d, T) in sizes.items():
                ours = {"softmax": softmax_flops(T, H), "rela_g": rela_g_flops(T, H, d)}[row]
                cells += [f"{table['checks'][name][row]:,}", f"{ours:,}"]
            rows.append(cells)
        return [RenderedTable(self.title, head, rows, [f"[RL]: {table['note']}"])]


RL_TABLE4 = Operations()
