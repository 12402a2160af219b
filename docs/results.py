"""Render docs/results/*.json, one file per experiment, and the claims about them, docs/claims/*.json: `make docs`.

An experiment has a question, an answer with details, a setting, commands, tables and limits; TOPICS lists it.
A text quotes a cell as {table|row|column}, one of another experiment as {experiment:table|row|column}. A fourth part
picks one number of a cell and a fifth formats it: {speed|softmax|training|0|.2f}. A column's name is followed by the
format of its cells, such as "{} ± {}" for a list of two numbers. A table with "hidden" is data for others to quote.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
TOPICS = {
    "Translation quality": (
        "relu_or_softmax gap reluformer_ablation multi30k rela_ablation regularizer_sweep ffn_slots activations "
        "inhibitor_init inhibitor_int16"
    ),
    "What attention does": "sparsity_and_heads alignment attention_maps",
    "Documents": "document_translation pronouns",
    "Speed and memory": "training_speed decoding_speed attention_speed gpu gpu_training hopper inhibitor_tables",
    "Correctness, data and demo": "parity scale_factor iwslt14_test_set demo",
}
USUAL_MACHINE = "AMD EPYC, one thread per run"
CLAIM_COLUMNS = ("claim", "paper", "ours", "reproduced?", "command")
QUOTATION = re.compile(r"\{(?:([\w-]+):)?([^{}|]+)\|([^{}|]+)\|([^{}|]*)(?:\|(\d*))?(?:\|([^{}|]+))?\}")

Data = dict[str, Any]

INTRODUCTION = (
    "# Results",
    "Pages and answers are rendered from JSON files, which have all numbers. The "
    "papers' claims: [ReLUFormer](reluformer.md) ([RF]), [ReLA](rela.md) ([RL]), [Inhibitor](inhibitor.md) ([IN]), "
    "[activations](activations.md) ([AF]).",
    "- **Models** are small: they may show the papers' order, not their numbers. `multi30k_de_en_small` has 3+3 layers "
    "of 128 and 1,984 updates; Multi30k is German–English, test_2016. Two seeds of one model differ by up to 3.6 BLEU "
    "(sparsemax: 5.6). Without a named machine, it was one core of an AMD EPYC.",
    "- **BLEU** is sacreBLEU's; p is its paired bootstrap (`--test bootstrap`), one value per seed: one-sided in the "
    "direction that was found, so of equal systems 11% have p < 0.05. ± is the standard deviation over seeds, "
    "parentheses hold 95% intervals, – did not converge.",
    "- **Losses** include label smoothing, not the regularizer; nll includes neither, in base 2. A **null row** is a "
    "query whose weights sum to 0.",
    "- `--update-epoch-batch-itr False`, where a page names it, restores the order of batches of its runs.",
)


def main() -> None:
    """Write every page."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    experiments = load("results")
    written = {DOCS / "results" / f"{name}.md": experiment_page(name, experiments) for name in experiments}
    written |= {DOCS / f"{name}.md": claims_page(claims, experiments) for name, claims in load("claims").items()}
    return written | {DOCS / "results.md": questions_page(experiments)}


def load(folder: str) -> dict[str, Data]:
    """Return the content of docs/`folder`/*.json by name, with numbers as they are printed: 34.20 keeps its 0."""
    files = sorted((DOCS / folder).glob("*.json"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return {name: json.loads(text, parse_float=Decimal, parse_int=Decimal) for name, text in texts.items()}


def experiment_page(name: str, experiments: dict[str, Data]) -> str:
    """Return the page of one experiment."""
    data = experiments[name]
    settings = [data["setting"].get(key) for key in ("data", "model", "seeds", "machine")]
    setting = "; ".join(text for text in settings if text not in (None, USUAL_MACHINE))
    setting = setting[0].upper() + setting[1:]
    revision = "Revision {revision}, {date}.".format(**data["setting"])
    signature = [f"BLEU `{data['signature']}`."] if "signature" in data else []
    answer = " ".join([data["answer"], *filter(None, [data.get("details")])])
    parts = [f"# {data['question']}", answer, " ".join([f"**Setting.** {setting}.", revision, *signature])]
    parts += [commands(data["commands"]), *data.get("text", ())]
    for section in data["tables"].values():
        if not section.get("hidden"):
            parts += [f"## {section['title']}", *section.get("text", ()), commands(section.get("commands", ()))]
            parts += [table(section), *section.get("notes", ())]
    parts += [f"**Limits.** {data['limits']}", f"Data: [{name}.json]({name}.json)."]
    return join(fill(part, name, experiments) for part in parts)


def claims_page(data: Data, experiments: dict[str, Data]) -> str:
    """Return a page with sections: text, claims, and rows and columns of an experiment's table, in other formats."""
    parts = [f"# {data['title']}", *data["text"]]
    for section in data["sections"]:
        parts += [f"## {section['title']}", *section.get("text", ())]
        if "claims" in section:
            filled = [[fill(cell, "", experiments, "results/") for cell in claim] for claim in section["claims"]]
            parts.append(markdown_table(CLAIM_COLUMNS, filled))
        if "table" in section:
            experiment, _, name = section["table"].partition(":")
            source = experiments[experiment]["tables"][name]
            rows = {row: cells for row, cells in source["rows"].items() if row in section.get("rows", source["rows"])}
            columns = source["columns"] | section.get("formats", {})
            parts.append(table({"columns": columns, "rows": rows}, section.get("columns")))
        parts += section.get("notes", ())
    return join(fill(part, "", experiments, "results/") for part in parts)


def questions_page(experiments: dict[str, Data]) -> str:
    """Return the list of all questions with their answers."""
    parts = list(INTRODUCTION)
    for topic, names in TOPICS.items():
        parts.append(f"## {topic}")
        for name in names.split():
            data = experiments[name]
            parts.append(f"**[{data['question']}](results/{name}.md)** {fill(data['answer'], name, experiments)}")
    return join(parts)


def table(section: Data, columns: Sequence[str] | None = None) -> str:
    """Return a table, or some of its columns besides the first."""
    first, *names = section["columns"]
    chosen = columns or names
    rows = [[row, *(cell(section, row, name) for name in chosen)] for row in section["rows"]]
    return markdown_table([first, *chosen], rows)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the lines of a Markdown table."""
    top, *lines = [f"| {' | '.join(line)} |" for line in (header, *rows)]
    return "\n".join([top, "|---" * len(header) + "|", *lines])


def cell(section: Data, row: str, column: str) -> str:
    """Return a cell as it is printed."""
    value = section["rows"][row][list(section["columns"])[1:].index(column)]
    if value is None or isinstance(value, str):
        return value or ""
    numbers = value if isinstance(value, list) else [value]
    return section["columns"][column].format(*map(show, numbers))


def show(number: Decimal | None, spec: str = ",f") -> str:
    """Return a number with a minus sign instead of a hyphen; "–" for a missing one."""
    with localcontext(rounding=ROUND_HALF_UP):
        return "–" if number is None else format(number, spec).replace("-", "−")


def fill(text: str, name: str, experiments: dict[str, Data], links: str = "") -> str:
    """Replace the quotations in `text`; if `links` is given, the first one of each experiment is a link below it.

    Raises:
        ValueError: a quotation names no cell.
    """
    linked = set()

    def quote(match: re.Match[str]) -> str:
        experiment, table_name, row, column, index, spec = match.groups()
        try:
            section = experiments[experiment or name]["tables"][table_name]
            quoted = cell(section, row, column)
            if index or spec:
                value = section["rows"][row][list(section["columns"])[1:].index(column)]
                quoted = show(value[int(index)] if index else value, spec or ",f")
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ValueError(f"{match.group()} in {name or 'docs/claims/'} quotes no cell") from error
        if not links or experiment in linked:
            return quoted
        linked.add(experiment)
        return f"[{quoted}]({links}{experiment}.md)"

    return QUOTATION.sub(quote, text)


def commands(lines: Sequence[str]) -> str:
    """Return commands as an indented block."""
    return "\n".join(f"    {line}" for line in lines)


def join(parts: Iterator[str] | Sequence[str]) -> str:
    """Return the parts as paragraphs of at most 120 columns; list items follow each other without an empty line."""
    page = ""
    for part in filter(None, parts):
        prose = not part.startswith(("|", "#", "    ", "!["))
        indent = "  " if part.startswith("- ") else ""
        wrapped = textwrap.fill(part, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        in_list = part.startswith("- ") and page.rpartition("\n\n")[2].startswith("- ")
        page += ("" if not page else "\n" if in_list else "\n\n") + (wrapped if prose else part)
    return page + "\n"


if __name__ == "__main__":
    main()
