"""Which of fairseq's tools work with checkpoints of relumt's models, as docs/fairseq.md says."""

import importlib
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fairseq.data.indexed_dataset import make_dataset
from torch.nn.functional import cross_entropy

import relumt
from tests.plugin.model.build import dictionary, write_checkpoint, write_data_bin

PAGE = Path(__file__).parents[2] / "docs" / "fairseq.md"
DATA, MODEL = Path("bin"), Path("checkpoint_best.pt")
SHARED = ["--path", str(MODEL), "--user-dir", str(Path(relumt.__file__).parent), "--cpu"]
SEARCH = ["--beam", "2", "--source-lang", "de", "--target-lang", "en"]
LENGTHS = [(3, 4), (4, 3), (5, 5), (2, 6)] * 2  # fairseq-validate skips a batch that is not of 8 sentences


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with a data-bin, a checkpoint of ReLUFormer, and the texts of the test set."""
    folder = tmp_path_factory.mktemp("tools")
    write_checkpoint(folder, "--attention", "relu")
    write_data_bin(folder / DATA, LENGTHS, "test")
    write_data_bin(folder / DATA, LENGTHS, "train")
    for language in ("de", "en"):
        lines = map(dictionary().string, make_dataset(str(folder / DATA / f"test.de-en.{language}"), "mmap"))
        (folder / f"test.{language}").write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture
def start(prepared, monkeypatch, capsys, caplog) -> Callable[..., str]:
    """Call a command of fairseq in this process; return what it prints and logs."""
    monkeypatch.chdir(prepared)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # fairseq adds some
    caplog.set_level("INFO", logger="fairseq")  # `relumt.load` silences it

    def call(tool: str, *arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", [tool, *map(str, arguments)])
        importlib.import_module(f"fairseq_cli.{tool}").cli_main()
        return capsys.readouterr().out

    return call


def translations(output: str) -> list[str]:
    """Return the best translations of fairseq in the order of the sentences."""
    found = re.findall(r"^D-(\d+)\t\S+\t(.*)$", output, flags=re.MULTILINE)
    return [text for _, text in sorted(found, key=lambda pair: int(pair[0]))]


def expected_translations() -> list[str]:
    loaded = relumt.load(MODEL, DATA, cpu=True, tokenized=True)
    return [translation.text for translation in loaded.translate(load("test.de"), beam=2)]


def generate(start: Callable[..., str]) -> None:
    start("generate", DATA, *SHARED, *SEARCH, "--results-path", ".")
    assert translations(Path("generate-test.txt").read_text()) == expected_translations()


def interactive(start: Callable[..., str]) -> None:
    printed = start("interactive", DATA, *SHARED, *SEARCH, "--input", "test.de")
    assert translations(printed) == expected_translations()


def validate(start: Callable[..., str]) -> None:
    logged = start("validate", DATA, *SHARED, "--task", "translation", "--valid-subset", "test", "--max-tokens", "100")
    assert float(re.findall(r"\| loss (\S+)", logged)[-1]) == pytest.approx(loss_of_test_set(), abs=1e-3)


def loss_of_test_set() -> float:
    """Return the cross-entropy of the references in bits per token."""
    loaded = relumt.load(MODEL, DATA, cpu=True).loaded
    loaded.load_subset("test")
    dataset = loaded.task.dataset("test")
    batch = dataset.collater([dataset[number] for number in range(len(dataset))])
    with torch.no_grad():
        logits, _ = loaded.model(**batch["net_input"])
    nats = cross_entropy(logits.flatten(0, 1), batch["target"].flatten(), ignore_index=dictionary().pad())
    return float(nats) / torch.log(torch.tensor(2.0)).item()


def load(name: str) -> list[str]:
    return Path(name).read_text().splitlines()


ROWS: dict[str, tuple[Callable[..., None], str]] = {
    "`fairseq-generate` without the scripts": (generate, "finds the translations of `relumt translate`"),
    "`fairseq-interactive`": (interactive, "takes text in subwords, as the data-bin has it"),
    "`fairseq-validate --task translation`": (validate, "logs the criterion of the training"),
}
"""Tool → how it is used, and what the page says of it."""


@pytest.mark.slow
@pytest.mark.parametrize("tool", ROWS)
def test_a_tool_works_as_documented(start, tool):
    use, note = ROWS[tool]
    use(start)
    assert f"| {tool} | yes | {note} |\n" in PAGE.read_text(encoding="utf-8")
