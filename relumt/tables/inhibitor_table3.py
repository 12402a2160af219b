"""[IN] Table 3: times of attention on encrypted integers, which `relumt.encrypted_attention` measures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Meta

from relumt.errors import UserError
from relumt.json_files import read_json
from relumt.papers import printed_values
from relumt.tables.context import TableContext
from relumt.tables.measured import MeasuredTable
from relumt.tables.rendering import RenderedTable
from relumt.tables.speeds import Positive

LENGTHS = (2, 4, 8, 16)
"""Numbers of tokens in the paper's table."""

Count = Annotated[int, Meta(ge=1, le=10**12)]
Complexity = Annotated[float, Meta(gt=0, le=1e18)]
Times = Annotated[list[Positive], Meta(min_length=1)]


@dataclass(frozen=True)
class Origin:
    """What times depend on; equal for measurements that need not be repeated.

    Attributes:
        length: n.
        repetitions: runs after the warm-up.
        cpu: its name.
        source: SHA-256 of the circuits.
    """

    length: Count
    repetitions: Count
    cpu: str
    source: str


@dataclass(frozen=True)
class MeasuredCircuit:
    """A circuit and its times.

    Attributes:
        bootstraps: programmable bootstraps of one run.
        max_bits: bits of the widest integer.
        error_probability: that any bootstrap of a run gives a wrong result.
        complexity: cost of one run that Concrete's optimizer estimates, without a unit.
        key_bytes: size of the keys that the server needs.
        compile_cpu_seconds, keygen_cpu_seconds: for compilation, and for the generation of keys.
        cpu_seconds, elapsed_seconds: times of each run on encrypted inputs, without encryption and decryption.
    """

    bootstraps: Count
    max_bits: Count
    error_probability: float
    complexity: Complexity
    key_bytes: Count
    compile_cpu_seconds: Positive
    keygen_cpu_seconds: Positive
    cpu_seconds: Times
    elapsed_seconds: Times


@dataclass(frozen=True)
class EncryptedTimes:
    """The file that the measurement of one length writes; both circuits ran in alternation, on the same inputs."""

    origin: Origin
    versions: dict[str, str]
    revision: str
    dot_product: MeasuredCircuit
    inhibitor: MeasuredCircuit

    def __post_init__(self) -> None:
        if len(self.dot_product.cpu_seconds) != len(self.inhibitor.cpu_seconds):
            raise ValueError("expected as many times of both circuits")

    @property
    def circuits(self) -> dict[str, MeasuredCircuit]:
        """Row of the paper's table -> our circuit."""
        return {"dot product": self.dot_product, "inhibitor": self.inhibitor}


def result_file(folder: Path, length: int) -> Path:
    """Return the path of the results for one length."""
    return folder / f"n{length}.json"


class EncryptedAttentionTable(MeasuredTable):
    """The paper's times and ratios beside ours, and what the circuits consist of."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See MeasuredTable."""
        times = self.read_times(context)
        return [self.beside_paper(times, context), self.circuits(times, context)]

    def read_times(self, context: TableContext) -> dict[int, EncryptedTimes]:
        """Return what was measured, by length; raise UserError if nothing was, or if a file is not valid."""
        folder, advice = self.results_folder(context), f"delete it and run {context.command}"
        found = {}
        for length in LENGTHS:
            path = result_file(folder, length)
            if path.exists():
                found[length] = read_json(path, EncryptedTimes, advice)
                if (measured := found[length].origin.length) != length:
                    raise UserError(
                        f"{path}: expected times of length {length}, found those of length {measured}; {advice}"
                    )
        if not found:
            raise UserError(f"no results in {folder}; measure times with {context.command}")
        return found

    def beside_paper(self, times: Mapping[int, EncryptedTimes], context: TableContext) -> RenderedTable:
        """Return seconds and ratios, one row per length."""
        sources = (f"[{self.paper}]", "ours")
        header = ["n"]
        for source in sources:
            header += [f"{source} dot product, s", f"{source} Inhibitor, s", f"{source} ratio"]
        header.append("ratio of estimated costs")
        products, inhibitors = (printed_values(self.paper, self.item, row) for row in ("dot product", "inhibitor"))
        rows = []
        for length in LENGTHS:
            product, inhibitor = products[str(length)] or math.nan, inhibitors[str(length)] or math.nan
            printed = [f"{product:g}", f"{inhibitor:g}", f"{product / inhibitor:.1f}"]
            rows.append([str(length), *printed, *(describe_times(times[length]) if length in times else [""] * 4)])
        notes = [
            "ratio: time of the dot product divided by the Inhibitor's; ours: median of the pairs (lowest–highest)",
            *describe_origin(list(times.values())),
        ]
        return RenderedTable(context.caption(self.title), header, rows, notes)

    def circuits(self, times: Mapping[int, EncryptedTimes], context: TableContext) -> RenderedTable:
        """Return what was compiled, one row per circuit."""
        header = ["n, circuit", "bootstraps", "bits", "keys, MB", "compilation, s", "key generation, s"]
        rows = [
            [
                f"{length}, {attention}",
                f"{circuit.bootstraps:,}",
                str(circuit.max_bits),
                f"{circuit.key_bytes / 1e6:.0f}",
                f"{circuit.compile_cpu_seconds:.1f}",
                f"{circuit.keygen_cpu_seconds:.1f}",
            ]
            for length, measured in times.items()
            for attention, circuit in measured.circuits.items()
        ]
        largest = max(circuit.error_probability for one in times.values() for circuit in one.circuits.values())
        notes = [
            "bootstraps: 4n² of the Inhibitor, 10n² + n of the dot product; bits: of the widest integer; CPU time",
            f"probability that a run is wrong: at most {largest:.0e}; every decrypted output was compared with exact "
            "integers, and all were equal",
        ]
        return RenderedTable(context.caption("circuits of encrypted attention"), header, rows, notes)


def describe_times(measured: EncryptedTimes) -> list[str]:
    """Return the cells of a length: both median times, their ratio, and the ratio of Concrete's estimates."""
    product, inhibitor = measured.dot_product, measured.inhibitor
    ratios = [a / b for a, b in zip(product.cpu_seconds, inhibitor.cpu_seconds, strict=True)]
    spread = f" ({min(ratios):.1f}–{max(ratios):.1f})" if len(ratios) > 1 else ""
    return [
        *(f"{median(circuit.cpu_seconds):.3g}" for circuit in (product, inhibitor)),
        f"{median(ratios):.1f}{spread}",
        f"{product.complexity / inhibitor.complexity:.1f}",
    ]


def describe_origin(measured: Sequence[EncryptedTimes]) -> list[str]:
    """Return how the times were measured."""
    repetitions = ", ".join(f"{one.origin.repetitions} (n = {one.origin.length})" for one in measured)
    machines = sorted({one.origin.cpu for one in measured})
    versions = sorted({"; ".join(f"{name} {number}" for name, number in one.versions.items()) for one in measured})
    revisions = sorted({one.revision for one in measured})
    return [
        f"ours: CPU time of one thread, medians of runs in alternation after a warm-up: {repetitions}",
        f"{', '.join(machines)}; {' | '.join(versions)}; {', '.join(revisions)}",
    ]


TABLES = (EncryptedAttentionTable("IN", "table3", module="relumt.encrypted_attention"),)
