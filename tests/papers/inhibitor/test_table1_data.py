"""Readers of MNIST, IMDB and IAM on generated files, and what they say about missing and damaged ones."""

import gzip
import shutil

import pytest

from relumt.errors import UserError
from relumt.papers.inhibitor import table1_data
from relumt.papers.inhibitor.generated_data import WRITERS
from relumt.papers.inhibitor.table1_data import PADDING, PRESETS, load


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A folder with the generated data of each task."""
    folder = tmp_path_factory.mktemp("generated")
    for task, write in WRITERS.items():
        write(folder / task)
    return folder


@pytest.fixture
def copy(generated, tmp_path):
    """Return a function that copies the data of a task to a folder that may be changed."""
    return lambda task: shutil.copytree(generated / task, tmp_path / task)


def read(task, folder):
    return load(task, PRESETS["smoke"][task], folder)


def test_one_number_of_each_half_is_marked_and_the_target_is_their_sum():
    inputs, targets = table1_data.draw_sequences(50, 10, seed=1).tensors
    numbers, markers = inputs.unbind(-1)
    assert markers[:, :5].sum(1).eq(1).all() and markers[:, 5:].sum(1).eq(1).all()
    assert targets.equal((numbers * markers).sum(1))
    splits = read("adding", None)
    assert [len(part) for part in splits[:3]] == [256, 64, 64]
    assert not splits.test.tensors[0].equal(splits.valid.tensors[0])


def test_images_and_labels_of_mnist_belong_together(generated):
    splits = read("mnist", generated / "mnist")
    assert [len(part) for part in splits[:3]] == [256, 64, 64]
    images, labels = splits.train.tensors
    patterns = [images[labels == digit].float().mean(0) for digit in range(10)]
    for image, label in splits.test:
        distances = [(image - pattern).abs().mean().item() for pattern in patterns]
        assert distances.index(min(distances)) == label
    trained, validated = ({image.numpy().tobytes() for image, _ in part} for part in (splits.train, splits.valid))
    assert not trained & validated


def test_files_of_mnist_need_not_be_compressed(copy):
    folder = copy("mnist")
    before = read("mnist", folder)
    for path in list(folder.glob("*.gz")):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert read("mnist", folder).train.tensors[0].equal(before.train.tensors[0])


def test_reviews_are_their_last_words_with_the_vocabulary_of_the_training_examples(generated):
    splits = read("imdb", generated / "imdb")
    words = splits.train.tensors[0]
    assert words.shape == (256, 20) and [len(part) for part in splits[1:3]] == [64, 64]
    assert splits.num_symbols == 2 + 9 + 6  # padding and unknown, neutral words, good and bad ones
    assert ((words != PADDING).sum(1) == 13).all()
    assert table1_data.extract_words("It's <br /><br />GREAT, great!") == ["it's", "great", "great"]
    encoded, labels = table1_data.encode_reviews([("a b c d", 1), ("", 0)], {"b": 2, "d": 3}, 3).tensors
    assert encoded.tolist() == [[2, 1, 3], [1, 0, 0]] and labels.tolist() == [1, 0]


def test_the_unpacked_archive_of_imdb_is_read_like_the_table(generated, tmp_path):
    for part in ("train", "test"):
        reviews = table1_data.read_reviews(generated / "imdb", part)
        for name, label in table1_data.LABELS.items():
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i, (text, _) in enumerate(review for review in reviews if review[1] == label):
                (folder / f"{i:03}_9.txt").write_text(text)
        assert sorted(table1_data.read_reviews(tmp_path, part)) == sorted(reviews)
    assert read("imdb", tmp_path).num_symbols == read("imdb", generated / "imdb").num_symbols


def test_a_review_may_contain_other_line_breaks(tmp_path):
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress("0\t1\t2\tbad\u2028film\x0c\x85\n1\t2\t9\tgood\r\n".encode()))
    assert table1_data.read_reviews(tmp_path, "train") == [("bad\u2028film\x0c\x85", 0), ("good\r", 1)]


def test_words_of_iam_are_split_by_form_and_their_images_keep_their_proportions(generated):
    splits = read("iam", generated / "iam")
    assert len(splits.train) == 256 and len(splits.valid) and len(splits.test)
    assert splits.num_symbols == 1 + len(set("balomitune"))
    words = table1_data.split_words(generated / "iam", table1_data.read_words(generated / "iam"))
    forms = [{name.rsplit("-", 2)[0] for name, _ in chosen} for chosen in words.values()]
    assert not (forms[0] & forms[1] or forms[0] & forms[2] or forms[1] & forms[2])
    images, labels = splits.test.tensors
    image = images[(labels != PADDING).sum(1) == 2][0]
    assert labels.shape[1] == 6 and image.any(0).nonzero().max() < 45  # 2 × 14 columns, 1.6 times as large
    assert image.max() == 255 and image.any(1).all()
    name, text = words["test"][0]
    (label,) = table1_data.read_images(generated / "iam", [(name, text + "?")], {}, 9).tensors[1].tolist()
    assert label == [1] * (len(text) + 1) + [PADDING] * (8 - len(text))  # indices that no training word has


def test_the_official_splits_are_used_if_their_lists_are_there(copy):
    folder = copy("iam")
    (folder / "lists").mkdir()
    for i, name in enumerate(table1_data.OFFICIAL_SPLITS):
        (folder / "lists" / name).write_text(f"a01-{i:03}u-00\n")
    words = table1_data.split_words(folder, table1_data.read_words(folder))
    forms = {split: {name[:8] for name, _ in chosen} for split, chosen in words.items()}
    assert forms == {"train": {"a01-000u"}, "valid": {"a01-001u", "a01-002u"}, "test": {"a01-003u"}}
    (folder / "lists" / "validationset2.txt").unlink()
    with pytest.raises(UserError, match=r"KeyError: 'validationset2\.txt'"):
        read("iam", folder)


def test_words_that_were_not_segmented_correctly_are_left_out(tmp_path):
    lines = ["# comment", "a01-000u-00-00 ok 1 2 3 4 5 AT A", "a01-000u-00-01 err 1 2 3 4 5 AT B"]
    (tmp_path / "words.txt").write_text("\n".join(lines))
    assert table1_data.read_words(tmp_path) == [("a01-000u-00-00", "A")]


def test_a_few_unreadable_images_are_left_out_and_more_are_refused(copy):
    folder = copy("iam")
    words = table1_data.read_words(folder)
    table1_data.image_path(folder, words[0][0]).write_bytes(b"")
    indices = dict.fromkeys("balomitune", 1)
    assert len(table1_data.read_images(folder, words, indices, 6)) == len(words) - 1
    table1_data.image_path(folder, words[1][0]).unlink()
    with pytest.raises(ValueError, match=r"2 of 320 images cannot be read, first .*a01-000u-00-00.png"):
        table1_data.read_images(folder, words, indices, 6)


IMAGES, TABLE, LIST = ("mnist", "train-images-idx3-ubyte.gz"), ("imdb", "test.tsv.gz"), ("iam", "words.txt")


@pytest.mark.parametrize(
    ("file", "damage", "problem"),
    [
        (IMAGES, lambda path: path.unlink(), "No such file.*train-images-idx3-ubyte'"),
        (IMAGES, lambda path: path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1])), "reshape"),
        (IMAGES, lambda path: path.write_bytes(gzip.compress(b"<html>" * 9)), "no idx file of bytes in 3 dimensions"),
        (TABLE, lambda path: path.unlink(), "No such file.*test/neg"),
        (LIST, lambda path: shutil.rmtree(path.parent / "words"), "images cannot be read, first .*No such file"),
    ],
)
def test_missing_and_damaged_files_are_one_line_that_says_where_the_data_comes_from(copy, file, damage, problem):
    task, name = file
    folder = copy(task)
    damage(folder / name)
    with pytest.raises(UserError, match=f"the data of {task}.*{problem}.*inhibitor_tables.md.*--{task}") as refused:
        read(task, folder)
    assert "\n" not in str(refused.value)
