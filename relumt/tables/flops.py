"""[RL] Table 4: floating-point operations of activation and normalization. Nothing is trained for it."""

import re

from relumt.metrics.flops import rela_g_flops, softmax_flops
from relumt.papers import papers
from relumt.tables.context import TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.rendering import RenderedTable
from relumt.tables.table import Table


class FlopsTable(Table):
    """The formulas, and their values beside the paper's rounded ones for two lengths."""

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return []

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        content = papers()[self.paper][self.item]
        header = ["", "formula", *(f"{source} {sizes}" for sizes in content["checks"] for source in ("[RL]", "ours"))]
        rows = []
        for row, formula in content["rows"].items():
            cells = [row, formula]
            for sizes, printed in content["checks"].items():
                H, d, T = map(int, re.findall(r"=(\d+)", sizes))  # "H=8 d=512 T=100"
                ours = {"softmax": softmax_flops(T, H), "rela_g": rela_g_flops(T, H, d)}[row]
                cells += [f"{printed[row]:,}", f"{ours:,}"]
            rows.append(cells)
        return [RenderedTable(self.title, header, rows, [f"[RL]: {content['note']}"])]


TABLES = (FlopsTable("RL", "table4"),)
