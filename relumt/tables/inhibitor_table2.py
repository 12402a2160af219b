"""[IN] Table 2: times of integer attention, which `relumt.integer_attention` measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from relumt.errors import UserError
from relumt.json_files import read_json
from relumt.papers import papers, printed_values
from relumt.tables.context import TableContext
from relumt.tables.measured import MeasuredTable
from relumt.tables.rendering import RenderedTable
from relumt.tables.speeds import Positive, Ratio, format_ratio

RESULTS = "times.json"
"""File in the folder of results."""

PAPER_HEAD_SIZE = 64
"""The d that is shown beside the paper's times; the paper's own is not printed."""
PAPER_WIDTHS = (16, 32)
"""The sums shown there, of the Inhibitor and of dot products, which the paper says need twice the precision."""

Width = Literal[16, 32]
Size = Annotated[int, Meta(ge=1, le=4096)]


@dataclass(frozen=True)
class Comparison:
    """The Inhibitor and dot products in alternation.

    Attributes:
        instruction_set: for example "AVX2".
        code: "tiled" with chosen instructions, "plain" with those of the compiler.
        inhibitor_width, dot_product_width: bits of the sums.
        d, n: components and length.
        inhibitor_us, dot_product_us: medians in microseconds.
        ratio: the Inhibitor's time divided by that of dot products.
    """

    instruction_set: str
    code: Literal["tiled", "plain"]
    inhibitor_width: Width
    dot_product_width: Width
    d: Size
    n: Size
    inhibitor_us: Positive
    dot_product_us: Positive
    ratio: Ratio

    @property
    def widths(self) -> tuple[int, int]:
        """Bits of the sums of both."""
        return self.inhibitor_width, self.dot_product_width


@dataclass(frozen=True)
class Origin:
    """What times depend on; equal for measurements that need not be repeated.

    Attributes:
        preset: preset of the measurement.
        cpu: name of the CPU.
        compiler: the command and the first line of what it says about itself.
        flags: instruction set → the compiler's flags, of all that were compiled.
        not_run: instruction sets that were compiled, but that this CPU lacks.
        source: hash of the C code and of the Python code that calls it.
        rounds: alternations.
    """

    preset: str
    cpu: str
    compiler: str
    flags: dict[str, str]
    not_run: list[str]
    source: str
    rounds: int


@dataclass(frozen=True)
class IntegerTimes:
    """The file that the measurement writes."""

    origin: Origin
    revision: str
    comparisons: list[Comparison]


class IntegerAttentionTable(MeasuredTable):
    """The paper's times beside ours, and ratios for every instruction set, width and d."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See MeasuredTable."""
        times = self.read_times(context)
        return [self.beside_paper(times, context), self.sweep(times, context)]

    def read_times(self, context: TableContext) -> IntegerTimes:
        """Read what was measured; raise UserError if there is nothing, or no valid file."""
        path = self.results_folder(context) / RESULTS
        try:
            times = read_json(path, IntegerTimes, f"delete it and run {context.command}")
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; measure times with {context.command}") from None
        if not times.comparisons:
            raise UserError(f"{path}: no times; delete it and run {context.command}")
        return times

    def beside_paper(self, times: IntegerTimes, context: TableContext) -> RenderedTable:
        """Return the paper's times and ours of tiled code, one row per length."""
        sizes = {one.d for one in times.comparisons}
        d = PAPER_HEAD_SIZE if PAPER_HEAD_SIZE in sizes else max(sizes)
        shown = {
            (one.instruction_set, one.n): one
            for one in times.comparisons
            if (one.d, one.code, one.widths) == (d, "tiled", PAPER_WIDTHS)
        }
        instruction_sets = list(dict.fromkeys(name for name, _ in shown))
        header = ["n"]
        for source in (f"[{self.paper}]", *instruction_sets):
            header += [f"{source} dot product, µs", f"{source} Inhibitor, µs", f"{source} ratio"]
        products, inhibitor = (printed_values(self.paper, self.item, row) for row in ("dot product", "inhibitor"))
        rows = []
        for n in papers()[self.paper][self.item]["columns"]:
            row = [n, f"{products[n]:g}", f"{inhibitor[n]:g}", f"{(inhibitor[n] or 0) / (products[n] or 1):.2f}"]
            for name in instruction_sets:
                found = shown.get((name, int(n)))
                row += describe_times(found) if found else [""] * 3
            rows.append(row)
        widths = f"sums of {PAPER_WIDTHS[0]} bits in the Inhibitor and of {PAPER_WIDTHS[1]} bits in dot products"
        return RenderedTable(
            context.caption(self.title), header, rows, [f"d = {d}, tiled code, {widths}", *notes(times)]
        )

    def sweep(self, times: IntegerTimes, context: TableContext) -> RenderedTable:
        """Return the ratios, one row per instruction set, code, widths and d."""
        lengths = sorted({one.n for one in times.comparisons})
        rows: dict[tuple[str, ...], dict[int, Ratio]] = {}
        for one in times.comparisons:
            key = (one.instruction_set, one.code, "/".join(map(str, one.widths)), str(one.d))
            rows.setdefault(key, {})[one.n] = one.ratio
        header = ["instruction set", "code", "bits of sums", "d", *(f"n = {n}" for n in lengths)]
        cells = [[*key, *(format_ratio(ratios.get(n)) for n in lengths)] for key, ratios in rows.items()]
        caption = "time of the Inhibitor relative to dot products"
        return RenderedTable(context.caption(caption), header, cells, ["bits of sums: Inhibitor/dot product"])


def describe_times(one: Comparison) -> list[str]:
    """Return the cells of a comparison: both times and their ratio."""
    return [f"{one.dot_product_us:.3g}", f"{one.inhibitor_us:.3g}", format_ratio(one.ratio)]


def notes(times: IntegerTimes) -> Sequence[str]:
    """Return how the times were measured."""
    origin = times.origin
    lines = [
        f"{origin.cpu}, one thread; medians of {origin.rounds} alternations, 95% intervals; {times.revision}",
        f"{origin.compiler}: {'; '.join(f'{name}: {flags}' for name, flags in origin.flags.items())}",
        "every kernel returned what NumPy's 64-bit integers give before it was timed",
    ]
    if origin.not_run:
        lines.append(f"compiled but not run, because this CPU lacks it: {', '.join(origin.not_run)}")
    return lines


TABLES = (IntegerAttentionTable("IN", "table2", module="relumt.integer_attention"),)
