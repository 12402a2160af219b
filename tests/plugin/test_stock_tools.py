"""Which of fairseq's tools work with checkpoints of relumt's models, as docs/stock_tools.md says."""

import importlib
import logging
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fairseq.data.indexed_dataset import make_dataset
from sacrebleu.metrics import BLEU
from torch.nn.functional import cross_entropy

import relumt
from tests.plugin.model.build import dictionary, write_checkpoint, write_data_bin

PAGE = Path(__file__).parents[2] / "docs" / "stock_tools.md"
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


def validate(start: Callable[..., str], *task: str) -> None:
    logged = start("validate", DATA, *SHARED, *task, "--valid-subset", "test", "--max-tokens", "100")
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


def score(start: Callable[..., str], *flags: str) -> None:
    references = load("test.en")
    hypotheses = [f"{line} w0" for line in references]
    Path("hypotheses").write_text("\n".join(hypotheses))
    printed = start("score", "--sys", "hypotheses", "--ref", "test.en", *flags)
    bleu = BLEU(tokenize="none", smooth_method="none").corpus_score(hypotheses, [references])
    assert f"BLEU4 = {bleu.score:.2f}," in printed and 0 < bleu.score < 100


def average(_: Callable[..., str]) -> None:
    """Read a checkpoint as fairseq's script does, which fairseq's packages lack: without relumt."""
    code = f"""import pickle, torch
try:
    torch.load("{MODEL}")
except pickle.UnpicklingError:
    print(*torch.load("{MODEL}", weights_only=False)["model"])"""
    names = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert names == list(torch.load(MODEL)["model"])
    raise pickle.UnpicklingError


def load(name: str) -> list[str]:
    return Path(name).read_text().splitlines()


ROWS: dict[str, tuple[Callable[..., object], type[Exception] | tuple[type[Exception], ...] | None, str]] = {
    "`fairseq-generate` without the scripts": (generate, None, "finds the translations of `relumt translate`"),
    "`fairseq-interactive`": (interactive, None, "takes text in subwords, as the data-bin has it"),
    "`fairseq-validate --task translation`": (
        lambda start: validate(start, "--task", "translation"),
        None,
        "logs the criterion of the training",
    ),
    "`fairseq-validate` without `--task`": (validate, KeyError, "fails with stock models, too; add `--task`"),
    "`fairseq-score`": (score, None, "as sacreBLEU with `-tok none`, without smoothing"),
    "`fairseq-score --sacrebleu`": (
        lambda start: score(start, "--sacrebleu"),
        TypeError,
        "passes open files, which sacreBLEU 2 refuses; use `sacrebleu`",
    ),
    "`scripts/average_checkpoints.py` of its repository": (
        average,
        pickle.UnpicklingError,
        "PyTorch 2.6 and later refuse any checkpoint of fairseq; use `relumt average`, or set "
        "`TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` if nobody can have put code into the files",
    ),
    "`torch.jit.script` (TorchScript)": (
        lambda _: torch.jit.script(relumt.load(MODEL, DATA, cpu=True).loaded.model),
        (OSError, RuntimeError),
        "does not know the dataclasses of mechanisms and masks",
    ),
    "`fairseq-eval-lm`": (
        lambda start: start("eval_lm", DATA, *SHARED, "--gen-subset", "test", "--max-tokens", "100"),
        FileNotFoundError,
        "is for language models; relumt's models translate",
    ),
}
"""Tool → how it is used, how it fails, and what to know about that."""


@pytest.mark.slow
@pytest.mark.parametrize("tool", ROWS)
def test_a_tool_works_or_fails_as_documented(start, tool):
    use, failure, note = ROWS[tool]
    if failure:
        with pytest.raises(failure):
            use(start)
    else:
        use(start)
    assert f"| {tool} | {'no' if failure else 'yes'} | {note} |\n" in PAGE.read_text(encoding="utf-8")


def test_the_page_has_no_other_rows():
    assert PAGE.read_text(encoding="utf-8").count("\n| ") == 1 + len(ROWS)
