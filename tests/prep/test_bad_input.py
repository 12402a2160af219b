import shutil

import pytest


def refuse(bitext, capsys, *options, status=2):
    """Run the command, which must exit with `status` and write nothing; return its one error line."""
    before = sorted(bitext.folder.rglob("*"))
    with pytest.raises(SystemExit) as exit_:
        bitext.prepare(*options)
    assert exit_.value.code == status
    assert sorted(bitext.folder.rglob("*")) == before
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("relumt: error: ")]
    return error


def test_unequal_line_counts(bitext, capsys):
    with bitext.path("train", "en").open("a") as file:
        file.write("One more.\n")
    error = refuse(bitext, capsys)
    assert f"{bitext.path('train', 'de')} has 40 lines, {bitext.path('train', 'en')} has 41" in error


def test_empty_file(bitext, capsys):
    bitext.path("valid", "de").write_bytes(b"")
    assert f"{bitext.path('valid', 'de')}: empty file" in refuse(bitext, capsys)


def test_missing_file(bitext, capsys):
    bitext.path("valid", "en").unlink()
    assert f"{bitext.path('valid', 'en')}: no such file" in refuse(bitext, capsys)


def test_invalid_utf8(bitext, capsys):
    bitext.path("test", "de").write_bytes("eins\nK\u00e4se\ndrei\n".encode("latin-1"))
    error = refuse(bitext, capsys)
    assert f"{bitext.path('test', 'de')}:2: not valid UTF-8 (byte 0xe4 at position 2 of the line)" in error


def test_empty_line_in_test(bitext, capsys):
    bitext.path("test", "en").write_bytes("one\n\xa0\r\nthree\n".encode())
    assert f"{bitext.path('test', 'en')}:2: empty line" in refuse(bitext, capsys)


def test_reserved_word_in_valid(bitext, capsys):
    bitext.write("valid", [("ein <PAD> Wort", "a word")])
    assert f"{bitext.path('valid', 'de')}:1: the word <pad>" in refuse(bitext, capsys, "--lowercase")


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_reserved_word_as_a_subword(bitext, capsys, pairs, split):
    texts = {"train": [*pairs, *[("a<pad> b<pad> c<pad>", "dog")] * 50], "test": pairs[:3]}  # words of one subword each
    texts[split] = [*texts[split], ("Katze<pad>", "cat")]
    for name, lines in texts.items():
        bitext.write(name, lines)
    error = refuse(bitext, capsys, "--vocab-size", "100")
    assert f"{bitext.path(split, 'de')}: <pad> occurs within a word and becomes a subword of its own" in error


@pytest.mark.parametrize("line", ["Der Hu@@ nd wartet", "▁Der ▁Hu nd ▁wartet"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_text_in_subwords(bitext, capsys, pairs, split, line):
    bitext.write(split, [*pairs[:2], (line, "The dog waits")])
    error = refuse(bitext, capsys, "--bpe", "none")
    assert f"{bitext.path(split, 'de')}: expected words, but 1 of 3 lines have subwords" in error


def test_a_held_out_line_without_pieces(bitext, capsys):
    bitext.write("test", [*[("ein Hund", "a dog")] * 9, ("▁▁", "a dog")])
    error = refuse(bitext, capsys, "--bpe", "sentencepiece", "--vocab-size", "70")
    assert f"{bitext.path('test', 'de')}:10: empty line" in error


@pytest.mark.parametrize("name", ["train.docs", "test.align", "valid.subsets.json", "test.raw.de"])
def test_a_compressed_file_beside_the_texts(bitext, capsys, name):
    (bitext.folder / f"{name}.gz").write_bytes(b"")
    error = refuse(bitext, capsys, "--tokenized-input")
    assert f"{name}.gz: only P.SRC and P.TGT may be compressed; decompress" in error


def test_a_text_that_is_there_twice(bitext, capsys):
    (bitext.folder / "valid.en.gz").write_bytes(b"")
    assert "valid.en.gz are both there and may differ; remove or rename one" in refuse(bitext, capsys)


def test_empty_lines_in_a_raw_text(bitext, capsys):
    for split, language, count in (("valid", "de", 4), ("valid", "en", 4), ("test", "de", 3), ("test", "en", 3)):
        bitext.path(split, f"raw.{language}").write_text("Hund\n" * (count - 1) + "\n")
    error = refuse(bitext, capsys, "--tokenized-input", "--bpe", "none")
    assert "raw.de" in error and ": empty line; valid and test need" in error


def test_document_lengths_of_another_text(bitext, capsys):
    (bitext.folder / "test.docs").write_text("2\n2\n")
    error = refuse(bitext, capsys)
    assert f"{bitext.folder / 'test.docs'}: its documents have 4 sentences, but the text has 3 lines" in error


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test.align", "1-1\n1-1 8-6\n1-1\n", "pair 2 links source word 8 and target word 6, "),
        ("test.align", "0-0\n\n0-9\n", "pair 3 links source word 0 and target word 9, "),
        ("test.en-de.align", "0-0\n6-0\n\n", "pair 2 links source word 0 and target word 6, "),
        ("test.align", "1 1 1 S\n3 9 1 S\n", "pair 3 links source word 9 and target word 1, "),
    ],
)
def test_links_to_words_that_do_not_exist(bitext, capsys, name, content, message):
    (bitext.folder / name).write_text(content)
    error = refuse(bitext, capsys, "--bpe", "none", "--tokenized-input")
    assert f"{message}counted from 0, but it has 8 and 6 words; " in error
    assert ("the file seems to count from 1" in error) == ("0-" not in content)


def test_some_raw_texts_without_the_others(bitext, capsys):
    for split, language in (("valid", "de"), ("valid", "en"), ("test", "de")):
        shutil.copyfile(bitext.path(split, language), bitext.path(split, f"raw.{language}"))
    error = refuse(bitext, capsys, "--tokenized-input")
    assert f"{bitext.path('test', 'raw.en')}: no such file, but {bitext.path('valid', 'raw.de')} is there" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bpe", "wordpiece"], "unknown --bpe 'wordpiece'; choose one of subword-nmt, sentencepiece, none"),
        (["--bpe", "none", "--vocab-size", "10"], "--vocab-size has no effect with --bpe none"),
        (["--vocab-size", "0"], "--vocab-size: expected a whole number from 1"),
        (["--tokenize", "--tokenized-input"], "exclude each other"),
        (["--tgt", "de"], "--src and --tgt are both 'de'"),
        (["--max-ratio", "0.5"], "must be at least 1"),
        (["--max-ratio", "nan"], "--max-ratio: expected a finite number"),
        (["--bpe", "sentencepiece"], "Vocabulary size too high"),
    ],
)
def test_options_that_cannot_work(bitext, capsys, options, message):
    assert message in refuse(bitext, capsys, *options)


@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_folder_of_other_files_is_never_replaced(bitext, capsys, options):
    bitext.out.mkdir(parents=True)
    (bitext.out / "thesis.tex").touch()
    assert f"{bitext.out}: exists but was not created by relumt prepare" in refuse(bitext, capsys, *options)
