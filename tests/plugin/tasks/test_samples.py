"""The sample translations that fairseq-train shows after a validation."""

from argparse import Namespace

import pytest
import torch
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from relumt.plugin.tasks.samples import MAX_LENGTH
from relumt.process import SAMPLES_VARIABLE
from tests.plugin.model.build import build, write_data_bin

LENGTHS = [(MAX_LENGTH + 1, 3), (4, 3), (7, 5), (6, 6)]


@pytest.fixture
def validate(tmp_path, monkeypatch, caplog):
    """Return a function that does what fairseq-train does after a validation, and returns what is logged."""
    caplog.set_level("INFO", logger="relumt")  # commands that ran before in this process have raised it
    data = write_data_bin(tmp_path / "data-bin", LENGTHS, "valid")
    settings = {"train_subset": "train", "required_seq_len_multiple": 1, "dataset_impl": "mmap"}
    config = TranslationConfig(data=str(data), source_lang="de", target_lang="en", **settings)
    task, model = TranslationTask.setup_task(config), build("reluformer")
    task.load_dataset("valid")

    def run(subwords):
        monkeypatch.setenv(SAMPLES_VARIABLE, subwords)
        caplog.clear()
        task.post_validate(model, {}, None)
        return [record.getMessage() for record in caplog.records]

    run.task, run.model = task, model
    return run


def test_the_first_short_sentences_are_shown_once_and_their_translations_every_time(validate):
    task, model = validate.task, validate.model
    dataset = task.dataset("valid")
    random_state, first, second = torch.get_rng_state(), validate("none"), validate("none")
    assert torch.equal(torch.get_rng_state(), random_state)  # so that training ends in the same bits
    expected = []
    for number, index in enumerate([2, 1], start=1):  # the longer one first, as in a batch of fairseq
        batch = dataset.collater([dataset[index]])
        generator = task.build_generator([model], Namespace(beam=1, max_len_a=1, max_len_b=10))
        (best, *_), *_ = task.inference_step(generator, [model], batch)
        texts = {
            "source": dataset[index]["source"],
            "reference": dataset[index]["target"],
            "translation": best["tokens"],
        }
        expected += [f"{name} {number}: {task.tgt_dict.string(tokens)}" for name, tokens in texts.items()]
    assert first == expected
    assert second == [line for line in expected if line.startswith("translation")]


def test_without_the_variable_or_short_sentences_nothing_is_shown(validate):
    assert validate("") == []
    validate.task.datasets["valid"] = None
    assert validate("none") == []
