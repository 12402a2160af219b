"""Print the finished runs as Markdown tables, one a dataset; or, by its name, a table or figure of a paper.

Only like is compared with like: runs whose scores were counted otherwise, on another test set or by another beam
search are refused by name, and so are seeds of one model that were trained with different flags.
"""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from relumt.errors import UserError
from relumt.runs.record import RECORD, Record, load_record
from relumt.tables import TABLES, Table

SUBSET = "test"
SCORES = {"bleu_tokenised": "BLEU tok", "bleu_detokenised": "BLEU detok", "chrf": "chrF"}
"""Name of a score in run.json → head of its column."""

HEAD = ("model", "seeds", "parameters", *SCORES.values(), "tokens/s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which table, where the runs are, and which dataset's."""
    parser.add_argument("name", nargs="?", help=f"of a paper's: {', '.join(TABLES)}")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument("--dataset", help="this dataset alone (default: all, a table each)")
    parser.add_argument("--out", type=Path, help="folder for a figure's plots (default: that of the runs)")


def run(arguments: argparse.Namespace) -> None:
    """Print the tables."""
    if arguments.name:
        print(of_paper(arguments.name).make(arguments.runs, arguments.out or arguments.runs, arguments.dataset))
        return
    records = finished_runs(arguments.runs, arguments.dataset or "*")
    if not records:
        raise UserError(f"{arguments.runs / (arguments.dataset or '')}: no evaluated run; run scripts/run.sh first")
    datasets = sorted({record["dataset"] for record in records})
    tables = [table(name, [record for record in records if record["dataset"] == name]) for name in datasets]
    print("\n\n".join(tables))


def of_paper(name: str) -> Table:
    """The table or figure of that name; raises UserError if there is none."""
    if name not in TABLES:
        raise UserError(f"no table '{name}'; known: {', '.join(TABLES)}")
    return TABLES[name]


def finished_runs(runs: Path, dataset: str) -> list[Record]:
    """The records below RUNS/DATASET/MODEL/SEED/ that have scores of the test set, by model and seed."""
    records = [load_record(path.parent) for path in runs.glob(f"{dataset}/*/*/{RECORD}")]
    finished = [record for record in records if SUBSET in record.get("evaluation", {})]
    return sorted(finished, key=lambda record: (record["model"], record["seed"]))


def table(dataset: str, records: list[Record]) -> str:
    """The table of one dataset's runs: a row a model, signatures and what else to know below it.

    Raises:
        UserError: two of the runs cannot be compared; it says which and why.
    """
    for name, column in SCORES.items():
        require_equal(records, f"the signature of {column}", lambda record, name=name: signature(record, name))
    require_equal(records, "the test set (references)", lambda record: evaluated(record)["references_sha256"])
    require_equal(records, "the parts of the test set", lambda record: sorted(evaluated(record).get("parts", {})))
    require_equal(records, "the flags of translation", lambda record: evaluated(record)["flags"])
    rows = [row(group) for group in by_model(records)]
    lines = [f"**{dataset}**", "", markdown_row(HEAD), markdown_row(["---"] + ["---:"] * (len(HEAD) - 1))]
    return "\n".join([*lines, *map(markdown_row, rows), "", *parts(records), *notes(records)])


def row(records: list[Record]) -> list[str]:
    """One model's row over its seeds; raises UserError if its seeds were not trained alike."""
    require_equal(records, "the flags of training", lambda record: record["fingerprint"]["flags"] | {"--seed": ""})
    name = records[0]["model"] + ("*" if any(record["mixed"] for record in records) else "")
    scores = [average([score(record, column) for record in records], ".2f") for column in SCORES]
    speed = average([record["training"]["tokens_per_second"] for record in records], ",.0f")
    seeds = ", ".join(str(record["seed"]) for record in records)
    return [name, seeds, f"{records[0]['training']['parameters']:,}", *scores, speed]


def parts(records: list[Record]) -> list[str]:
    """A table of the scores on smaller sets within the test set, where there are any."""
    names = list(dict.fromkeys(name for record in records for name in evaluated(record).get("parts", {})))
    if not names:
        return []
    head = ("of the test set", "model", "sentences", *SCORES.values())
    lines = [markdown_row(head), markdown_row(["---"] * 2 + ["---:"] * (len(head) - 2))]
    for name in names:
        for group in by_model(records):
            of_group = [evaluated(record)["parts"][name] for record in group]
            scores = [average([part["scores"][column]["score"] for part in of_group], ".2f") for column in SCORES]
            lines.append(markdown_row([name, group[0]["model"], f"{of_group[0]['sentences']:,}", *scores]))
    return [*lines, ""]


def notes(records: list[Record]) -> list[str]:
    """What stands below a table: signatures, devices, what ± and * mean where they occur."""
    lines = [f"- {column}: `{signature(records[0], name)}`" for name, column in SCORES.items()]
    devices = sorted({record["device"] for record in records})
    lines.append(f"- tokens/s: target tokens a second in training, on {'; '.join(devices)}")
    if len(devices) > 1:
        lines.append("- the devices differ, so the speeds do not compare")
    if any(len(group) > 1 for group in by_model(records)):
        lines.append("- ±: standard deviation over the seeds")
    mixed = [name_of(record) for record in records if record["mixed"]]
    if mixed:
        lines.append(f"- *: made in more than one environment or revision (`mixed` in {RECORD}): {', '.join(mixed)}")
    return lines


def require_equal(records: Iterable[Record], what: str, of: Callable[[Record], Any]) -> None:
    """Raise UserError, naming two of the runs, unless `of` gives the same for all."""
    first, *others = records
    for other in others:
        if of(first) != of(other):
            raise UserError(
                f"{name_of(first)} and {name_of(other)} differ in {what}: {of(first)} and {of(other)}; "
                "evaluate or train them alike, or move one to another RUNS"
            )


def by_model(records: list[Record]) -> list[list[Record]]:
    """The records grouped by model, in their order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["model"], []).append(record)
    return list(groups.values())


def evaluated(record: Record) -> dict[str, Any]:
    """The evaluation on the test set."""
    return record["evaluation"][SUBSET]


def score(record: Record, name: str) -> float:
    """A score of the test set."""
    return evaluated(record)["scores"][name]["score"]


def signature(record: Record, name: str) -> str:
    """sacreBLEU's signature of a score of the test set."""
    return evaluated(record)["scores"][name]["signature"]


def name_of(record: Record) -> str:
    """DATASET/MODEL/SEED."""
    return f"{record['dataset']}/{record['model']}/{record['seed']}"


def average(values: list[float], form: str) -> str:
    """The mean, and the standard deviation where there are several values."""
    spread = f" ± {stdev(values):{form}}" if len(values) > 1 else ""
    return f"{mean(values):{form}}{spread}"


def markdown_row(cells: Iterable[object]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"
