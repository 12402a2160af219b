"""Readers of MNIST, IMDB and IAM on generated files, and what they say about missing and damaged ones."""

import gzip
import re
import shutil

import numpy as np
import pytest
import torch

from relumt.errors import UserError
from relumt.one_layer import adding, iam, imdb
from relumt.one_layer.generated_data import WRITERS, encode_idx
from relumt.one_layer.models import PADDING
from relumt.one_layer.settings import PRESETS
from relumt.one_layer.tasks import TASKS

SETTINGS = {task: plan.settings for task, plan in PRESETS["smoke"].items()}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A folder with the generated data of each task."""
    folder = tmp_path_factory.mktemp("generated")
    for task, write in WRITERS.items():
        write(folder / task)
    return folder


@pytest.fixture
def copy(generated, tmp_path):
    """Return a function that copies the data of a task to a folder that may be damaged."""
    return lambda task: shutil.copytree(generated / task, tmp_path / task)


def load(task, folder):
    return TASKS[task].load(SETTINGS[task], folder)


def test_one_number_of_each_half_is_marked_and_the_target_is_their_sum():
    examples = adding.draw(50, 10, seed=1)
    numbers, markers = examples.inputs.unbind(-1)
    assert markers[:, :5].sum(1).eq(1).all() and markers[:, 5:].sum(1).eq(1).all()
    torch.testing.assert_close(examples.targets, (numbers * markers).sum(1))
    assert adding.draw(50, 10, seed=1).inputs.equal(examples.inputs)
    assert not adding.draw(50, 10, seed=2).inputs.equal(examples.inputs)


def test_images_and_labels_of_mnist_belong_together(generated):
    splits = load("mnist", generated / "mnist")
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [256, 64, 64]
    patterns = [splits.train.inputs[splits.train.targets == digit].float().mean(0) for digit in range(10)]
    for image, label in zip(splits.test.inputs, splits.test.targets, strict=True):
        distances = [(image - pattern).abs().mean().item() for pattern in patterns]
        assert distances.index(min(distances)) == label
    assert len(splits.data) == 4


def test_validation_examples_are_not_trained_on(generated):
    splits = load("mnist", generated / "mnist")
    trained = {image.numpy().tobytes() for image in splits.train.inputs}
    assert not trained & {image.numpy().tobytes() for image in splits.valid.inputs}


def test_files_of_mnist_need_not_be_compressed(copy):
    folder = copy("mnist")
    before = load("mnist", folder)
    for path in list(folder.glob("*.gz")):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert load("mnist", folder).train.inputs.equal(before.train.inputs)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.unlink(), "expected train-images-idx3-ubyte or .*found neither"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a complete gzip file"),
        (
            lambda path: path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1])),
            "expected 250896 bytes",
        ),
        (lambda path: path.write_bytes(gzip.compress(b"\0\0")), "found 2 bytes"),
        (lambda path: path.write_bytes(gzip.compress(b"<html>" * 9)), r"of shape N × \[28, 28\]"),
        (lambda path: path.write_bytes(gzip.compress(encode_idx(np.zeros((2, 28, 28), np.uint8)))), "2 images"),
    ],
)
def test_damaged_files_of_mnist_are_named(copy, damage, problem):
    folder = copy("mnist")
    damage(folder / "train-images-idx3-ubyte.gz")
    with pytest.raises(UserError, match=f"train-images.*{problem}.*--mnist|{problem}.*--mnist"):
        load("mnist", folder)


def test_reviews_are_their_last_words_with_the_vocabulary_of_the_training_examples(generated):
    splits = load("imdb", generated / "imdb")
    assert splits.train.inputs.shape == (256, 20)
    assert splits.num_symbols == 2 + 9 + 6  # padding and unknown, neutral words, good and bad ones
    assert ((splits.train.inputs != PADDING).sum(1) == 13).all()
    assert imdb.extract_words("It's <br /><br />GREAT, great!") == ["it's", "great", "great"]
    encoded = imdb.encode([("a b c d", 1), ("", 0)], {"b": 2, "d": 3}, 3)
    assert encoded.inputs.tolist() == [[2, 1, 3], [1, 0, 0]]


def test_the_unpacked_archive_of_imdb_is_read_like_the_table(generated, tmp_path):
    for part in imdb.PARTS:
        reviews = imdb.read_table(generated / "imdb" / f"{part}.tsv.gz")
        for name, label in imdb.LABELS.items():
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i, (text, _) in enumerate(review for review in reviews if review[1] == label):
                (folder / f"{i}_9.txt").write_text(text)
    splits, expected = load("imdb", tmp_path), load("imdb", generated / "imdb")
    assert splits.num_symbols == expected.num_symbols
    assert splits.test.targets.sum() == expected.test.targets.sum()


def test_a_review_may_contain_other_line_breaks(tmp_path):
    path = tmp_path / "train.tsv.gz"
    path.write_bytes(gzip.compress("0\t1\t2\tbad\u2028film\x0c\x85\n1\t2\t9\tgood\r\n".encode()))
    assert imdb.read_table(path) == [("bad\u2028film\x0c\x85", 0), ("good\r", 1)]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.unlink(), "expected test/pos and test/neg, or test.tsv.gz"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "not a complete gzip file"),
        (lambda path: path.write_bytes(gzip.compress(b"0\t1\t2\tbad\n1\t7")), "line 2 is not label<TAB>id"),
        (lambda path: path.write_bytes(gzip.compress(b"0\t1\t2\tbad\n")), "test lacks positive or negative"),
        (lambda path: path.write_bytes(gzip.compress(b"0\t1\t2\t\xff\n")), "UTF-8"),
    ],
)
def test_damaged_files_of_imdb_are_named(copy, damage, problem):
    folder = copy("imdb")
    damage(folder / "test.tsv.gz")
    with pytest.raises(UserError, match=f"{problem}.*--imdb"):
        load("imdb", folder)


def test_words_of_iam_are_split_by_form_and_their_images_keep_their_proportions(generated):
    splits = load("iam", generated / "iam")
    assert len(splits.train) == 256 and len(splits.valid) and len(splits.test)
    assert splits.num_symbols == 1 + len(set("balomitune"))
    words = iam.split_words(generated / "iam", iam.read_list(generated / "iam" / "words.txt"))
    forms = [{name.rsplit("-", 2)[0] for name, _ in chosen} for chosen in words.values()]
    assert not (forms[0] & forms[1] or forms[0] & forms[2] or forms[1] & forms[2])
    longest = splits.test.targets.shape[1]
    assert longest == 6
    image = splits.test.inputs[(splits.test.targets != PADDING).sum(1) == 2][0]
    assert image.any(0).nonzero().max() < 45 and image.max() == 255  # 2 × 14 columns, 1.6 times as large


def test_the_official_splits_are_used_if_their_lists_are_there(copy):
    folder = copy("iam")
    lists = folder / "largeWriterIndependentTextLineRecognitionTask"
    lists.mkdir()
    for i, name in enumerate(("trainset", "validationset1", "validationset2", "testset")):
        (lists / f"{name}.txt").write_text(f"a01-{i:03}u-00\n")
    words = iam.split_words(folder, iam.read_list(folder / "words.txt"))
    forms = {split: {name[:8] for name, _ in chosen} for split, chosen in words.items()}
    assert forms == {"train": {"a01-000u"}, "valid": {"a01-001u", "a01-002u"}, "test": {"a01-003u"}}


def test_official_splits_without_one_of_their_lists_are_refused(copy):
    folder = copy("iam")
    for name in ("trainset", "validationset1", "testset"):
        (folder / f"{name}.txt").write_text("a01-000u-00\n")
    with pytest.raises(UserError, match=r"validationset2\.txt of the official splits not found; add or remove all"):
        load("iam", folder)


def test_words_that_were_not_segmented_correctly_are_left_out(tmp_path):
    lines = ["# comment", "a01-000u-00-00 ok 1 2 3 4 5 AT A", "a01-000u-00-01 err 1 2 3 4 5 AT B"]
    (tmp_path / "words.txt").write_text("\n".join(lines))
    assert iam.read_list(tmp_path / "words.txt") == [("a01-000u-00-00", "A")]


def test_a_few_unreadable_images_are_left_out_and_more_are_refused(copy):
    folder = copy("iam")
    words = iam.read_list(folder / "words.txt")
    iam.image_path(folder, words[0][0]).write_bytes(b"")
    indices = dict.fromkeys("balomitune", 1)
    assert len(iam.read_examples(folder, words, indices, 6)) == len(words) - 1
    iam.image_path(folder, words[1][0]).unlink()
    with pytest.raises(UserError, match=r"a01-000u-00-00.png: missing or unreadable, as 2 of 320 images are; register"):
        iam.read_examples(folder, words, indices, 6)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (None, "expected words.txt and the folder words"),
        ("a01 ok\n", "line 1 is not 'NAME ok|err'"),
        ("# nothing\n", "has no words for train, valid, test"),
    ],
)
def test_missing_and_damaged_lists_of_iam_are_named(tmp_path, words, problem):
    (tmp_path / "words").mkdir()
    if words is not None:
        (tmp_path / "words.txt").write_text(words)
    with pytest.raises(UserError, match=f"{re.escape(problem)}.*register"):
        load("iam", tmp_path)


def test_the_images_of_iam_must_be_there(tmp_path):
    (tmp_path / "words.txt").write_text("a01-000u-00-00 ok 1 2 3 4 5 AT A\n")
    with pytest.raises(UserError, match=r"expected words.txt and the folder words.*register"):
        load("iam", tmp_path)


def test_a_character_that_no_training_word_has_is_an_error_of_the_model():
    assert iam.encode("ab?", {"a": 1, "b": 2}, 4) == [1, 2, 3, PADDING]


def test_all_tasks_but_the_adding_problem_have_generated_data():
    assert WRITERS.keys() == TASKS.keys() - {"adding"}
