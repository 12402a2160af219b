"""Print the finished runs as tables, one a dataset; or, by its name, a table or figure of a paper.

Only like is compared with like: runs whose scores were counted otherwise, on another test set or by another beam
search are refused by name, and so are seeds of one model that were trained with different flags.
"""

import argparse
from pathlib import Path

from relumt.errors import UserError
from relumt.runs.comparability import (
    DEVICES,
    SCORES,
    STARTS,
    SUBSET,
    average,
    evaluated,
    name_of,
    require_equal,
    require_seed_folder,
    score,
    signature,
    started_from,
)
from relumt.runs.record import RECORD, Record, load_record
from relumt.tables import TABLES, get_table
from relumt.tables.context import TESTS, TableContext
from relumt.tables.experiments import PRESETS
from relumt.tables.rendering import FORMATS, RenderedTable

HEAD = ("model", "seeds", "parameters", *SCORES.values(), "tokens/s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which table, where the runs are, and how it is printed."""
    parser.add_argument("name", nargs="?", help=f"of a paper's: {', '.join(TABLES)}")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument("--dataset", help="without a name: this dataset alone (default: all, a table each)")
    parser.add_argument("--preset", choices=list(PRESETS), help="of a paper's table (default: paper)")
    parser.add_argument("--format", default="markdown", choices=list(FORMATS), help="(default: markdown)")
    parser.add_argument("--out", type=Path, help="folder for a figure's plots (default: that of the runs)")
    parser.add_argument("--test", choices=list(TESTS), help="of differences in a paper's table (default: bootstrap)")


def run(arguments: argparse.Namespace) -> None:
    """Print the tables."""
    if arguments.name is None:
        for name in ("preset", "out", "test"):
            if getattr(arguments, name):
                raise UserError(f"--{name} is of a paper's table; name one: {', '.join(TABLES)}")
        sheets = tables_of_all(arguments.runs, arguments.dataset)
    else:
        table = get_table(arguments.name)
        if arguments.dataset:
            raise UserError(f"--dataset is not of {arguments.name}; its corpora are chosen with --preset")
        preset, test = arguments.preset or "paper", arguments.test or "bootstrap"
        context = TableContext(arguments.name, arguments.runs, preset, arguments.out or arguments.runs, test)
        sheets = table.render(context)
    print("\n\n".join(map(FORMATS[arguments.format], sheets)))


def tables_of_all(runs: Path, dataset: str | None) -> list[RenderedTable]:
    """A table a dataset, or of this one alone; raises UserError where there is no evaluated run."""
    if dataset and (set(dataset) & set("/*?[") or dataset == ".."):
        raise UserError(f"--dataset {dataset}: not the name of a folder in {runs}")
    records = finished_runs(runs, dataset or "*")
    if not records:
        deeper = sorted({str(path.parents[3]) for path in runs.glob(f"*/*/*/*/{RECORD}")})
        hint = f"give --runs {deeper[0]}, or another such folder there" if deeper else "run scripts/run.sh first"
        raise UserError(f"{runs / (dataset or '')}: no evaluated run; {hint}")
    datasets = sorted({record["dataset"] for record in records})
    return [sheet for name in datasets for sheet in table(name, [one for one in records if one["dataset"] == name])]


def finished_runs(runs: Path, dataset: str) -> list[Record]:
    """The records below RUNS/DATASET/MODEL/SEED/ that have scores of the test set, by model and seed."""
    finished = []
    for path in runs.glob(f"{dataset}/*/*/{RECORD}"):
        record = load_record(path.parent)
        if SUBSET in record.get("evaluation", {}):
            require_seed_folder(path.parent, record)
            finished.append(record)
    return sorted(finished, key=lambda record: (record["model"], record["seed"]))


def table(dataset: str, records: list[Record]) -> list[RenderedTable]:
    """The table of one dataset's runs, a row a model; and one of smaller sets in its test set, where there are any.

    Raises:
        UserError: two of the runs cannot be compared; it says which and why.
    """
    named = by_name(records)
    for name, column in SCORES.items():
        require_equal(named, f"the signature of {column}", lambda record, name=name: signature(record, name))
    require_equal(named, "the dictionaries", lambda record: record["fingerprint"]["dictionaries"])
    require_equal(named, "the test set (references)", lambda record: evaluated(record)["references_sha256"])
    require_equal(named, "the parts of the test set", lambda record: sorted(evaluated(record).get("parts", {})))
    require_equal(named, "the flags of translation", lambda record: evaluated(record)["flags"])
    require_equal(named, *STARTS)
    rows = [row(group) for group in by_model(records)]
    return [RenderedTable(dataset, HEAD, rows, notes(records)), *parts(dataset, records)]


def row(records: list[Record]) -> list[str]:
    """One model's row over its seeds; raises UserError if its seeds were not trained alike."""
    named = by_name(records)
    require_equal(named, "the flags of training", lambda record: record["fingerprint"]["flags"] | {"--seed": ""})
    require_equal(named, *DEVICES)
    name = records[0]["model"] + ("*" if any(record["mixed"] for record in records) else "")
    scores = [average([score(record, column) for record in records], ".2f") for column in SCORES]
    speed = average([record["training"]["tokens_per_second"] for record in records], ",.0f")
    seeds = ", ".join(str(record["seed"]) for record in records)
    return [name, seeds, f"{records[0]['training']['parameters']:,}", *scores, speed]


def parts(dataset: str, records: list[Record]) -> list[RenderedTable]:
    """A table of the scores on smaller sets within the test set, where there are any."""
    names = list(dict.fromkeys(name for record in records for name in evaluated(record).get("parts", {})))
    rows = []
    for name in names:
        for group in by_model(records):
            of_group = [evaluated(record)["parts"][name] for record in group]
            scores = [average([part["scores"][column]["score"] for part in of_group], ".2f") for column in SCORES]
            rows.append([name, group[0]["model"], f"{of_group[0]['sentences']:,}", *scores])
    head = ("of the test set", "model", "sentences", *SCORES.values())
    return [RenderedTable(f"{dataset}, parts of the test set", head, rows)] if rows else []


def notes(records: list[Record]) -> list[str]:
    """What stands below a table: signatures, devices, what ± and * mean where they occur."""
    lines = [f"{column}: `{signature(records[0], name)}`" for name, column in SCORES.items()]
    devices = sorted({record["device"] for record in records})
    lines.append(f"tokens/s: target tokens a second in training, on {'; '.join(devices)}")
    if len(devices) > 1:
        lines.append("the devices differ, so the speeds do not compare")
    if first := started_from(records[0]):
        lines.append(f"trained on {first} first")
    if any(len(group) > 1 for group in by_model(records)):
        lines.append("±: standard deviation over the seeds")
    mixed = [name_of(record) for record in records if record["mixed"]]
    if mixed:
        lines.append(f"*: made in more than one environment or revision (`mixed` in {RECORD}): {', '.join(mixed)}")
    return lines


def by_name(records: list[Record]) -> dict[str, Record]:
    """The records by DATASET/MODEL/SEED."""
    return {name_of(record): record for record in records}


def by_model(records: list[Record]) -> list[list[Record]]:
    """The records grouped by model, in their order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["model"], []).append(record)
    return list(groups.values())
