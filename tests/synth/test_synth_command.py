import json
from collections import Counter, defaultdict

import pytest

from relumt.cli import main
from relumt.synth import write

FILES = {
    *(f"{split}.{kind}" for split in ("train", "valid", "test") for kind in ("de", "en", "docs")),
    "test.de-en.align",
    "test.contrast.jsonl",
    "corpus.json",
}


def synth(out, seed=1, documents=9, valid=3, test=6):
    sizes = ["--documents", str(documents), "--valid-documents", str(valid), "--test-documents", str(test)]
    main(["synth", "--seed", str(seed), *sizes, "--out", str(out)])
    return {path.name: path.read_bytes() for path in out.iterdir()}


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus of the size of the demo's."""
    out = tmp_path_factory.mktemp("synth") / "corpus"
    synth(out, documents=3000, valid=30, test=300)
    return out


def test_all_files_are_written_and_agree_in_length(corpus):
    assert {path.name for path in corpus.iterdir()} == FILES
    for split in ("train", "valid", "test"):
        sizes = [int(size) for size in lines(corpus / f"{split}.docs")]
        assert sum(sizes) == len(lines(corpus / f"{split}.de")) == len(lines(corpus / f"{split}.en"))
    assert len(lines(corpus / "test.de-en.align")) == len(lines(corpus / "test.de"))
    summary = json.loads((corpus / "corpus.json").read_text())
    assert summary["documents"] == {"train": 3000, "valid": 30, "test": 300}
    assert summary["sentences"]["train"] == len(lines(corpus / "train.de"))


def test_alignments_point_at_words(corpus):
    triples = zip(lines(corpus / "test.de-en.align"), lines(corpus / "test.de"), lines(corpus / "test.en"), strict=True)
    for alignment, german, english in triples:
        pairs = [tuple(map(int, pair.split("-"))) for pair in alignment.split()]
        assert max(i for i, _ in pairs) == len(german.split(" ")) - 1
        assert max(j for _, j in pairs) == len(english.split(" ")) - 1


def test_contrast_examples_are_sentences_of_the_test_set(corpus):
    sizes = [int(size) for size in lines(corpus / "test.docs")]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    german, english = lines(corpus / "test.de"), lines(corpus / "test.en")
    examples = [json.loads(line) for line in lines(corpus / "test.contrast.jsonl")]
    assert len(examples) == sum("it" in sentence.split() for sentence in english)
    for example in examples:
        line = starts[example["document"]] + example["sentence"]
        assert (example["source"], example["target"]) == (english[line], german[line])
        assert 2 <= example["sentence"] < sizes[example["document"]]
        variants = [sentence.split() for sentence in (example["target"], *example["wrong"])]
        changed = [set(tokens) for tokens in zip(*variants, strict=True) if len(set(tokens)) > 1]
        assert changed in ([{"er", "sie", "es"}], [{"ihn", "sie", "es"}])


def test_single_sentences_determine_one_pronoun_in_three(corpus):
    answers = defaultdict(Counter)
    for line in lines(corpus / "test.contrast.jsonl"):
        example = json.loads(line)
        answers[example["source"]][example["target"]] += 1
    best = sum(counts.most_common(1)[0][1] for counts in answers.values())
    assert best * 3 == sum(counts.total() for counts in answers.values())


@pytest.mark.parametrize("side", ["de", "en"])
def test_the_training_set_has_many_words_and_few_test_sentences(corpus, side):
    train, test = lines(corpus / f"train.{side}"), lines(corpus / f"test.{side}")
    assert len({token for line in train for token in line.split(" ")}) >= 900
    known = set(train)
    assert sum(line in known for line in test) < 0.01 * len(test)


def test_the_files_depend_on_the_seed_only(tmp_path):
    first, second, other = synth(tmp_path / "a"), synth(tmp_path / "b"), synth(tmp_path / "c", seed=2)
    assert first == second
    assert all(first[name] != other[name] for name in FILES - {"valid.docs", "test.docs", "train.docs"})


def test_the_test_set_does_not_depend_on_the_size_of_the_training_set(tmp_path):
    small, large = synth(tmp_path / "a", documents=3), synth(tmp_path / "b", documents=12)
    assert {name: small[name] for name in FILES if name.startswith("test")} == {
        name: large[name] for name in FILES if name.startswith("test")
    }
    assert large["train.de"].startswith(small["train.de"])


def test_a_folder_in_use_is_not_written_to(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(SystemExit) as stopped:
        synth(tmp_path / "out")
    assert stopped.value.code == 2
    assert "out exists and is not an empty folder; remove it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine"]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "out").mkdir()
    assert set(synth(tmp_path / "out")) == FILES


@pytest.mark.parametrize("option", ["--documents", "--test-documents"])
def test_sizes_below_one_are_refused(tmp_path, capsys, option):
    with pytest.raises(SystemExit) as stopped:
        main(["synth", "--documents", "3", option, "0", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert f"argument {option}: expected a whole number from 1 to 2147483647, found '0'" in capsys.readouterr().err


def test_a_path_inside_a_file_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SystemExit) as stopped:
        synth(tmp_path / "file" / "out")
    assert stopped.value.code == 2
    assert "is not a writable folder" in capsys.readouterr().err


def test_nothing_is_left_if_writing_fails(tmp_path, monkeypatch):
    def broken(seed, split, count):
        raise RuntimeError

    monkeypatch.setattr(write, "split_documents", broken)
    with pytest.raises(RuntimeError):
        synth(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
