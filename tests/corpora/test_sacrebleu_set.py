"""Test sets by sacreBLEU's names, from a cache that the tests fill."""

import json
from urllib.error import URLError

import pytest
from sacrebleu.dataset import DATASETS

from relumt.cli import main
from relumt.corpora.build import find_test_set
from relumt.corpora.published_corpora import CORPORA
from relumt.files import write_lines
from tests.corpora.published_cases import write_published

NAME = "wmt14/full"
SOURCE = ["“Hello,” he said.", "It is – the  end.", "A dog."]
REFERENCE = ["„Hallo“, sagte er.", "Es ist – das Ende.", "Ein Hund."]
DOCUMENTS = ["news.1", "news.1", "news.2"]


def write_text(cache, field, lines):
    folder = cache / "wmt14" / "full"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"wmt14_full.en-de.{field}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def fill(cache):
    for field, lines in {"src": SOURCE, "ref": REFERENCE, "docid": DOCUMENTS}.items():
        write_text(cache, field, lines)
    for field in ("genre", "origlang"):
        write_text(cache, field, ["x"] * 3)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of sacreBLEU, on a machine that is offline."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("relumt.corpora.build.SACREBLEU_DIR", str(folder))
    monkeypatch.setattr(DATASETS[NAME], "_outdir", str(folder / NAME))
    monkeypatch.setattr(DATASETS[NAME], "_rawdir", str(folder / NAME / "raw"))
    monkeypatch.setattr("urllib.request.urlopen", lambda url: (_ for _ in ()).throw(URLError("offline")))
    return folder


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def corpus(tmp_path, *arguments):
    main(["corpus", "--out", str(tmp_path / "out"), *arguments])
    return tmp_path / "out"


def failing(capsys, status, action):
    with pytest.raises(SystemExit) as stopped:
        action()
    (line,) = capsys.readouterr().err.splitlines()
    assert stopped.value.code == status
    return line


def test_the_texts_of_a_test_set_with_its_documents(tmp_path, cache):
    fill(cache)
    out = corpus(tmp_path, "--test", NAME, "--language-pair", "en-de")
    assert lines(out / "test.raw.en") == [*SOURCE[:1], "It is – the end.", *SOURCE[2:]]
    assert lines(out / "test.raw.de") == REFERENCE
    assert lines(out / "test.en")[0] == "&quot; Hello , &quot; he said ."
    assert lines(out / "test.de")[0] == "„ Hallo “ , sagte er ."
    assert lines(out / "test.docs") == lines(out / "test.raw.docs") == ["2", "1"]


@pytest.mark.usefixtures("unverified")
def test_a_corpus_with_another_test_set(tmp_path, cache):
    fill(cache)
    write_published(CORPORA["wmt14_en_de"], tmp_path / "raw")
    options = ["--raw", str(tmp_path / "raw"), "--vocab-size", "50"]
    out = corpus(tmp_path, "wmt14_en_de", *options)
    dictionary = (out / "dict.en.txt").read_bytes()
    assert lines(out / "text" / "test.raw.de") != REFERENCE
    corpus(tmp_path, "wmt14_en_de", *options, "--test", NAME, "--overwrite")
    assert lines(out / "text" / "test.raw.de") == REFERENCE and lines(out / "test.docs") == ["2", "1"]
    assert (out / "dict.en.txt").read_bytes() == dictionary
    options = json.loads((tmp_path / "out.text" / "corpus.json").read_text())["options"]
    assert options["test"] == NAME and options["language_pair"] == "en-de"


def test_a_corpus_without_raw_validation_texts(tmp_path, cache):
    fill(cache)
    test_set = find_test_set(NAME, "en-de")
    write_lines(tmp_path / "valid.en", ["A dog ."])
    test_set.write_as_test_set(test_set, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("test.*")) == ["test.de", "test.docs", "test.en"]


@pytest.mark.parametrize(
    ("references", "status", "message"),
    [(REFERENCE[:2], 2, "wmt14_full.en-de.src has 3 lines, "), (None, 1, f"{NAME}: not in sacreBLEU's cache")],
)
def test_a_damaged_or_missing_cache(tmp_path, cache, capsys, references, status, message):
    if references:
        fill(cache)
        write_text(cache, "ref", references)
    arguments = ["--test", NAME, "--language-pair", "en-de"]
    error = failing(capsys, status, lambda: corpus(tmp_path, *arguments))
    assert message in error and (references or ("offline" in error and f"delete {cache / NAME}" in error))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--test", "wmt14/ful"], "'wmt14/ful': not a test set of sacreBLEU; choose another, such as wmt14/full"),
        (["--test", NAME], "expected --language-pair with one of cs-en, de-en"),
        (["--language-pair", "en-de"], "expected a CORPUS (multi30k_de_en"),
        (["wmt18_en_fi", "--test", NAME], "found en-fi"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_requests_that_cannot_work(tmp_path, capsys, arguments, message):
    assert message in failing(capsys, 2, lambda: corpus(tmp_path, *arguments))
