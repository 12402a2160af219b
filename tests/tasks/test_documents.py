"""The task that makes documents of a sentence-level data-bin, as fairseq uses it."""

import itertools
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask

from relumt.runs.dataset_config import require_dataset
from relumt.runs.flags import command_line
from relumt.tasks.documents import DocumentsConfig, DocumentsTask
from tests.models.build import arguments, build, dictionary, sample, write_data_bin

LENGTHS = [(7, 5), (3, 8), (1, 2), (6, 6), (4, 4), (9, 3)]
EOS = 2


@pytest.fixture
def data(tmp_path):
    folder = write_data_bin(tmp_path / "data-bin", LENGTHS)
    (folder / "test.docs").write_text("4\n2\n")
    return folder


def task_of(data, **settings):
    of_other_groups = {"dataset_impl": "mmap", "train_subset": "train", "required_seq_len_multiple": 1}
    config = DocumentsConfig(data=str(data), source_lang="de", target_lang="en", **of_other_groups, **settings)
    return DocumentsTask.setup_task(config)


def loaded(data, **settings):
    task = task_of(data, **settings)
    task.load_dataset("test")
    return task, task.dataset("test")


def test_without_a_length_it_is_the_translation_task(data):
    _, sentences = loaded(data)
    assert len(sentences) == 6


@pytest.mark.parametrize("separator", ["", "w7"])
@pytest.mark.parametrize("limit", [1, 12, 16, 100])
def test_chunks_hold_the_sentences_of_their_document_in_order(data, limit, separator):
    _, sentences = loaded(data)
    task, chunks = loaded(data, document_length=limit, document_separator=separator)
    between = [task.src_dict.index(separator)] if separator else []
    for side in ("source", "target"):
        joined, expected = [chunks[i][side].tolist() for i in range(len(chunks))], []
        for first, last in ((0, 4), (4, 6)):
            document = [sentences[i][side].tolist()[:-1] for i in range(first, last)]
            expected += list(itertools.chain(*((*sentence, *between) for sentence in document)))
        words = [token for chunk in joined for token in (*chunk[:-1], *between)]
        assert all(chunk[-1] == EOS for chunk in joined)
        assert words == expected
    if limit == 100:
        assert len(chunks) == 2


def test_batches_are_fairseqs(data):
    task, chunks = loaded(data, document_length=16)
    settings = {"max_positions": (1024, 1024), "required_batch_size_multiple": 8, "seed": 1}
    iterator = task.get_batch_iterator(chunks, max_tokens=40, **settings)
    seen = [number for batch in iterator.next_epoch_itr() for number in batch["id"].tolist()]
    assert sorted(seen) == list(range(len(chunks)))
    settings = {"max_sentences": 1, "num_shards": 2, "seed": 1, "disable_iterator_cache": True}
    shards = [task.get_batch_iterator(chunks, shard_id=i, **settings) for i in (0, 1)]
    seen = [n for shard in shards for batch in shard.next_epoch_itr() if batch for n in batch["id"].tolist()]
    assert sorted(seen) == list(range(len(chunks)))


def test_batches_are_padded_as_pairs_of_sentences_are(data):
    _, chunks = loaded(data, document_length=16)
    batch = chunks.collater([chunks[i] for i in range(len(chunks))])
    lengths = batch["net_input"]["src_lengths"]
    assert torch.equal(batch["net_input"]["src_tokens"].ne(1).sum(1), lengths)
    assert lengths.max() > max(source for source, _ in LENGTHS)


@pytest.mark.parametrize(
    ("docs", "settings", "message"),
    [
        (None, {}, "test.docs: no such file"),
        ("4\n1\n", {}, "its documents have 5 sentences, but the text has 6 lines"),
        ("4\n2\n", {"document_separator": "nowhere"}, "'nowhere' is no word of the dictionary"),
        ("4\n2\n", {"document_separator": "</s>"}, "'</s>' is no word of the dictionary"),
    ],
)
def test_what_cannot_be_chunked_ends_in_one_line(data, capsys, docs, settings, message):
    if docs is None:
        (data / "test.docs").unlink()
    else:
        (data / "test.docs").write_text(docs)
    settings = {"document_length": 16} | settings
    with pytest.raises(SystemExit) as stopped:
        loaded(data, **settings)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in error and error.count("\n") == 1


def test_sentences_beyond_the_positions_are_refused_or_left_out(data, capsys):
    task, chunks = loaded(data, document_length=8, max_source_positions=8)
    with pytest.raises(SystemExit):
        task.get_batch_iterator(dataset=chunks, max_tokens=16)
    error = capsys.readouterr().err
    assert "1 sentences are longer than the model's positions; train with --max-source-positions 9" in error
    assert error.count("\n") == 1
    settings = {"max_positions": (8, 1024), "ignore_invalid_inputs": True}
    left = task.get_batch_iterator(dataset=chunks, max_tokens=16, **settings).next_epoch_itr(shuffle=False)
    assert sorted(n for batch in left for n in batch["id"].tolist()) == [0, 1, 2, 3]


def test_what_would_stop_the_first_validation_stops_training_before(data, capsys):
    flags = ("--arch", "reluformer", "--max-source-positions", "8")
    for skips, stops in (((), True), (("--skip-invalid-size-inputs-valid-test",), False)):
        task, _ = loaded(data, document_length=8, max_source_positions=8)
        model = task.build_model(arguments(*flags, *skips))
        if not stops:
            task.begin_epoch(1, model)
            continue
        with pytest.raises(SystemExit):
            task.begin_epoch(1, model)
        assert "test: 1 sentences are longer" in capsys.readouterr().err


def test_a_model_of_documents_translates_what_has_no_target(data):
    task = task_of(data, document_length=16)
    sentences = [torch.tensor([5, 6, EOS]), torch.tensor([7, EOS])]
    dataset = task.build_dataset_for_inference(sentences, [len(x) for x in sentences])
    batches = task.get_batch_iterator(dataset=dataset, max_tokens=16).next_epoch_itr(shuffle=False)
    assert sorted(n for batch in batches for n in batch["id"].tolist()) == [0, 1]


def test_documents_need_a_target_side(data, capsys):
    for path in data.glob("test.*.en.*"):
        path.unlink()
    with pytest.raises(SystemExit):
        loaded(data, document_length=16)
    assert "test: has no target side, by which chunks are cut too" in capsys.readouterr().err


def test_a_sentence_longer_than_the_limit_stands_alone_within_the_positions(data, caplog):
    _, chunks = loaded(data, document_length=8, max_source_positions=9)
    assert [len(chunks[i]["source"]) for i in range(len(chunks))] == [7, 3, 6, 4, 9]
    assert "1 sentences are longer than 8 tokens; each is a chunk of its own" in caplog.text


def test_a_length_beyond_the_models_positions_is_refused_before_it_is_built(data, capsys):
    with pytest.raises(SystemExit) as stopped:
        task_of(data, document_length=2048).build_model(arguments("--arch", "reluformer"))
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert "add --max-source-positions 2048 --max-target-positions 2048" in error and error.count("\n") == 1
    allowed = {"max_source_positions": 2048, "max_target_positions": 2048}
    model = task_of(data, document_length=2048, **allowed).build_model(
        arguments("--arch", "reluformer", "--max-source-positions", "2048", "--max-target-positions", "2048")
    )
    assert model.max_positions() == (2048, 2048)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"document_length": -5}, "--document-length must be positive, or 0 for sentences, not -5"),
        ({"document_length": 8, "eval_bleu_args": "{bad"}, "--eval-bleu-args {bad is no JSON object"),
        ({"document_length": 8, "eval_bleu_args": "[1]"}, "--eval-bleu-args [1] is no JSON object"),
        ({"document_separator": "w7"}, "--document-separator does nothing without --document-length"),
    ],
)
def test_flags_that_would_do_nothing_are_refused(data, capsys, settings, told):
    with pytest.raises(SystemExit):
        task_of(data, **settings).build_model(arguments("--arch", "reluformer"))
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_a_chunk_larger_than_a_batch_is_refused(data, capsys):
    task, chunks = loaded(data, document_length=16)
    assert task.get_batch_iterator(dataset=chunks, max_tokens=16).next_epoch_itr(shuffle=False).total == len(chunks)
    with pytest.raises(SystemExit):
        task.get_batch_iterator(dataset=chunks, max_tokens=12)
    assert (
        "a chunk of 13 tokens does not fit a batch of 12; give --max-tokens (in validation" in capsys.readouterr().err
    )


@pytest.mark.parametrize(("given", "allowed"), [("{}", (2, 200)), ('{"beam": 2, "max_len_b": 7}', (2, 7))])
def test_validation_translates_documents_to_their_end(data, given, allowed):
    task = task_of(data, document_length=16, eval_bleu=True, eval_bleu_args=given)
    task.build_model(arguments("--arch", "reluformer"))
    assert (task.sequence_generator.max_len_a, task.sequence_generator.max_len_b) == allowed


def test_a_target_of_2048_tokens_is_not_cut():
    """With the flags that configs/ gives to translation: every token is forced, and all of them come back."""
    datasets = Path(__file__).resolve().parents[2] / "configs" / "datasets"
    config = require_dataset("europarl7_en_de_2048", datasets)
    of_training = config.train
    positions = {name: of_training[name] for name in ("--max-source-positions", "--max-target-positions")}
    flags = command_line(config.generate | positions)
    config = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_generation_parser(), ["nowhere", "--path", "none", *flags])
    )
    model = build("reluformer", *command_line(positions)).eval()
    batch = sample([(2048, 2048)])
    forced = batch["target"][:, :-1]
    generator = TranslationTask(config.task, dictionary(), dictionary()).build_generator([model], config.generation)
    best = generator.generate([model], batch, prefix_tokens=forced)[0][0]["tokens"]
    assert best.tolist() == batch["target"][0].tolist()
