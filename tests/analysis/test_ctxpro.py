"""CTXPro: the form is looked for in the last sentence of the translation, whose context fits into a chunk."""

import json

import pytest
import torch

from relumt.analysis.ctxpro import has_words, last_sentence
from relumt.cli import main
from relumt.corpora.contrastive import FormExample, write_examples
from tests.plugin.model.build import write_data_bin

LENGTHS = [(7, 5), (3, 8)]


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("Nein. Nein, das tue ich nicht.", "Nein, das tue ich nicht."),
        ("Wie geht es? - Gut. - Sehr erfreut.", "Wie geht es? - Gut. - Sehr erfreut."),  # dialogue is not split
        ('Er rief: "Halt!" „Warum?“ 20 Leute kamen.', "20 Leute kamen."),
        ("Wirklich ... ja.", "Wirklich ... ja."),
        ("Ja! Öfter. und so", "Öfter. und so"),
        ("ja", "ja"),
        ("", ""),
    ],
)
def test_the_last_sentence(text, last):
    assert last_sentence(text) == last


@pytest.mark.parametrize(
    ("text", "words", "is_there"),
    [
        ("Das verstehe ich.", "verstehe", True),
        ("Ja, (Verstehe)!", "verstehe", True),
        ("Ich verstehe's", "verstehe", False),
        ("Das versteht er.", "versteh", False),
        ("Ich will es tun", "Will es", True),
        ("", "will", False),
    ],
)
def test_words_are_found_whole(text, words, is_there):
    assert has_words(text, words) == is_there


@pytest.mark.parametrize(
    ("flags", "accuracy", "num_context"),
    [
        ((), [True, False, False], [0, 0, 0]),
        (("--task", "translation_documents", "--document-length", "9"), [True, True, False], [1, 1, 2]),
    ],
)
def test_the_command_translates_in_context(
    tmp_path, checkpoint_with, monkeypatch, capsys, flags, accuracy, num_context
):
    """A model that repeats its source has a form if that is in the sentence, or in the context that it has read."""

    def search(loaded, sources, settings, batch_size):
        score = torch.tensor(-1.0)
        return [[{"tokens": x, "score": score, "positional_scores": torch.zeros(len(x))}] for x in sources]

    monkeypatch.setattr("relumt.runs.inference.translator.search_hypotheses", search)
    data = write_data_bin(tmp_path / "data", LENGTHS)
    write_data_bin(data, LENGTHS, "train")
    examples = [
        FormExample("w1 w2", "w2", ["w3 " * 7, "w4"], 1, {"rule": "A"}),
        FormExample("w1 w2", "w5 w1", ["w6 " * 6, "w5"], 2, {"rule": "A"}),
        FormExample("w1", "w9", ["w3", "w4"], 9, {"rule": "B"}),
    ]
    write_examples(tmp_path / "forms", examples)
    checkpoint = checkpoint_with(*flags)
    main(["contrast", "--checkpoint", str(checkpoint), "--data", str(data), "--examples", str(tmp_path / "forms")])
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == pytest.approx(sum(accuracy) / 3)
    assert found["mean_context_sentences"] == pytest.approx(sum(num_context) / 3)
    shares = {distance: share["accuracy"] for distance, share in found["accuracy_by_distance"].items()}
    assert shares == {"1": accuracy[0], "2": accuracy[1], ">3": accuracy[2]}
    assert found["accuracy_by_category"]["rule"]["B"] == {"examples": 1, "accuracy": 0}
