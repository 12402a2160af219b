"""`relumt corpus` and `relumt synth`: damaged records, and output that they must not replace."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.prep.corpora import published_text
from relumt.prep.corpora.multi30k import TEXTS

pytestmark = pytest.mark.attack("corpora")

SYNTH = ["synth", "--documents", "3", "--valid-documents", "3", "--test-documents", "3", "--out"]


# relumt corpus


@pytest.fixture
def multi30k(attack, monkeypatch) -> list[str]:
    """A command that prepares a copy of Multi30k of thirty lines."""
    monkeypatch.setattr(published_text, "fetch", lambda source, raw: raw / source.name)
    Path("raw").mkdir()
    for split, texts in TEXTS.items():
        for language, text in zip(("de", "en"), texts, strict=True):
            lines = (f"a {language} caption , {split} number {number} .\n" for number in range(30))
            (Path("raw") / text.path).write_text("".join(lines))
    return ["corpus", "multi30k_de_en", "--raw", "raw", "--vocab-size", "20", "--out"]


RECORDS = [
    *("", "{", "[]", "null", "1", '"x"', "{}", '{"settings": []}', "[" * 9999, "\xff", "\0"),
    '{"settings": {}, "limits": [1], "sacremoses": "", "raw": {}}',
    '{"settings": {}, "limits": ["1", "2"], "sacremoses": "", "raw": {}}',
    '{"settings": {}, "limits": [1, 2], "sacremoses": 5, "raw": {}}',
    '{"settings": {}, "limits": [1, 2], "sacremoses": "", "raw": {"a": 1}}',
    '{"settings": {}, "limits": [' + "9" * 5000 + ', 2], "sacremoses": "", "raw": {}}',
]


@pytest.mark.parametrize("content", RECORDS, ids=lambda content: ascii(content[:30]))
@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_damaged_record_of_a_corpus_is_refused(attack, multi30k, content, options):
    Path("bin.text").mkdir()
    Path("bin.text/corpus.json").write_text(content, encoding="latin-1")
    Path("bin.text/train.de").write_text("kept")
    ended = attack.relumt(*multi30k, "bin", *options)
    assert ended.status == 2 and "corpus.json: not in the expected format" in ended.error


@pytest.mark.parametrize("raw", ["bin", "bin/raw", "bin.text", "bin.text/raw", "link", "bin/../bin/raw"])
def test_a_corpus_does_not_replace_its_raw_files(attack, multi30k, raw):
    assert attack.relumt(*multi30k, "bin").status == 0
    if raw == "link":
        shutil.move("raw", "bin/raw")
        Path("link").symlink_to("bin/raw")
    else:
        shutil.copytree("raw", raw, dirs_exist_ok=True)
    ended = attack.relumt(*multi30k, "bin", "--raw", raw, "--overwrite", "--vocab-size", "25")
    assert ended.status == 2 and "which would be replaced" in ended.error


@pytest.mark.parametrize("name", ["bin", "bin.text"])
@pytest.mark.parametrize("options", [[], ["--overwrite"]])
@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        Path.touch,
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("missing"),
        lambda path: path.symlink_to("/dev/null"),
        lambda path: (path.mkdir(), (path / "thesis.tex").touch()),
    ],
)
def test_a_corpus_replaces_only_what_it_made(attack, multi30k, name, options, make: Callable):
    make(Path(name))
    assert attack.relumt(*multi30k, "bin", *options).status == 2


@pytest.mark.parametrize("out", ["", "a\nb", "a:b", ".", "/", "x" * 252])
def test_a_corpus_needs_a_usable_output(attack, multi30k, out):
    assert attack.relumt(*multi30k, out).status == 2


@pytest.mark.parametrize("name", ["", "multi30k", "../multi30k_de_en", "multi30k_de_en\n", "--help=x", "__init__"])
def test_unknown_corpora_are_refused(attack, name):
    assert attack.relumt("corpus", f"{name}", "--out", "bin").status == 2


def test_texts_with_the_former_name_of_subsets_are_not_used_without_them(attack, multi30k):
    assert attack.relumt(*multi30k, "bin").status == 0
    Path("bin.text/test.parts.json").write_text('{"a": [0]}')
    ended = attack.relumt(*multi30k, "bin")
    assert ended.status == 2 and "rename it" in ended.error


# relumt synth


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        Path.touch,
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("missing"),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: (path.mkdir(), (path / "thesis.tex").touch()),
    ],
)
def test_a_generated_corpus_replaces_nothing(attack, make: Callable):
    make(Path("out"))
    assert attack.relumt(*SYNTH, "out").status == 2


@pytest.mark.parametrize("out", ["", ".", "/", "a\nb", "\udcff", "missing/../..", "/proc/x", "/dev/null/x", "x" * 256])
def test_a_generated_corpus_needs_a_usable_output(attack, out):
    assert attack.relumt(*SYNTH, out).status == 2
