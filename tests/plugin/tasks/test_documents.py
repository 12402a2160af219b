"""The task that assembles documents from a sentence-level data-bin, as fairseq uses it."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from fairseq.utils import strip_pad
from hypothesis import given
from hypothesis import strategies as st

from relumt.errors import UserError
from relumt.plugin.tasks.chunks import chunk_sizes, chunk_starts
from relumt.plugin.tasks.documents import DocumentsConfig, DocumentsTask
from relumt.runs.dataset_config import require_dataset
from relumt.runs.flags import command_line
from tests.plugin.model.build import arguments, build, dictionary, sample, write_data_bin

LENGTHS = [(7, 5), (3, 8), (1, 2), (6, 6), (4, 4), (9, 3)]
EOS = 2


@pytest.fixture
def data(tmp_path):
    folder = write_data_bin(tmp_path / "data-bin", LENGTHS)
    (folder / "test.docs").write_text("4\n2\n")
    return folder


def setup_task(data, **settings):
    other_settings = {"dataset_impl": "mmap", "train_subset": "train", "required_seq_len_multiple": 1}
    config = DocumentsConfig(data=str(data), source_lang="de", target_lang="en", **other_settings, **settings)
    return DocumentsTask.setup_task(config)


def load_test_set(data, **settings):
    task = setup_task(data, **settings)
    task.load_dataset("test")
    return task, task.dataset("test")


@pytest.mark.parametrize("separator", ["", "w7"])
@pytest.mark.parametrize("limit", [1, 12, 16, 100])
def test_chunks_hold_the_sentences_of_their_document_in_order(data, limit, separator):
    _, sentences = load_test_set(data)
    task, chunks = load_test_set(data, document_length=limit, document_separator=separator)
    separators = [task.src_dict.index(separator)] if separator else []
    for side in ("source", "target"):
        concatenated = [chunks[i][side].tolist() for i in range(len(chunks))]
        assert all(chunk[-1] == EOS for chunk in concatenated)
        assert list(map(len, concatenated)) == {"source": chunks.src_sizes, "target": chunks.tgt_sizes}[side].tolist()
        tokens = [token for chunk in concatenated for token in (*chunk[:-1], *separators)]
        assert tokens == [token for i in range(6) for token in (*sentences[i][side].tolist()[:-1], *separators)]
    if limit == 100:
        assert len(chunks) == 2


def test_every_chunk_is_in_one_batch_of_one_shard(data):
    task, chunks = load_test_set(data, document_length=16)
    settings = {"max_positions": (1024, 1024), "required_batch_size_multiple": 8, "seed": 1}
    iterator = task.get_batch_iterator(chunks, max_tokens=40, **settings)
    seen = [number for batch in iterator.next_epoch_itr() for number in batch["id"].tolist()]
    assert sorted(seen) == list(range(len(chunks)))
    settings = {"max_sentences": 1, "num_shards": 2, "seed": 1, "disable_iterator_cache": True}
    shards = [task.get_batch_iterator(chunks, shard_id=i, **settings) for i in (0, 1)]
    seen = [n for shard in shards for batch in shard.next_epoch_itr() if batch for n in batch["id"].tolist()]
    assert sorted(seen) == list(range(len(chunks)))


def test_a_data_loader_does_not_outlive_its_epoch(data):
    """With --update-epoch-batch-itr, which disables the cache of iterators; garbage may be collected late."""
    task, sentences = load_test_set(data)
    batches = task.get_batch_iterator(sentences, max_sentences=2, disable_iterator_cache=True)
    assert len(list(batches.next_epoch_itr())) == 3
    reference = weakref.ref(batches)
    gc.disable()
    try:
        del batches
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("docs", "settings", "message"),
    [
        (None, {}, "test.docs: no such file"),
        ("4\n1\n", {}, "its documents have 5 sentences, but the text has 6 lines"),
        ("4\n2\n", {"document_separator": "nowhere"}, "'nowhere' is not a word of the dictionary"),
        ("4\n2\n", {"document_separator": "</s>"}, "'</s>' is not a word of the dictionary"),
    ],
)
def test_invalid_documents_are_rejected(data, docs, settings, message):
    (data / "test.docs").unlink()
    if docs:
        (data / "test.docs").write_text(docs)
    with pytest.raises(UserError, match=message):
        load_test_set(data, **{"document_length": 16} | settings)


def test_sentences_that_exceed_the_positions_are_rejected_or_skipped(data):
    task, chunks = load_test_set(data, document_length=8, max_source_positions=8)
    settings = {"dataset": chunks, "max_tokens": 16, "max_positions": (8, 1024)}
    with pytest.raises(Exception, match="skip this example with --skip-invalid-size-inputs-valid-test"):
        task.get_batch_iterator(**settings)
    batches = task.get_batch_iterator(**settings, ignore_invalid_inputs=True).next_epoch_itr(shuffle=False)
    assert sorted(n for batch in batches for n in batch["id"].tolist()) == [0, 1, 2, 3]


def test_a_document_model_translates_text_without_a_target(data):
    task = setup_task(data, document_length=16)
    sentences = [torch.tensor([5, 6, EOS]), torch.tensor([7, EOS])]
    dataset = task.build_dataset_for_inference(sentences, [len(x) for x in sentences])
    batches = task.get_batch_iterator(dataset=dataset, max_tokens=16).next_epoch_itr(shuffle=False)
    assert sorted(n for batch in batches for n in batch["id"].tolist()) == [0, 1]


def test_a_sentence_longer_than_the_limit_is_a_chunk_of_its_own(data, caplog):
    _, chunks = load_test_set(data, document_length=8, max_source_positions=9)
    assert [len(chunks[i]["source"]) for i in range(len(chunks))] == [7, 3, 6, 4, 9]
    assert "1 sentences are longer than 8 tokens; each is a chunk of its own" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"document_length": 2048}, "add --max-source-positions 2048 --max-target-positions 2048"),
        ({"document_separator": "w7"}, "--document-separator has no effect without --document-length"),
    ],
)
def test_invalid_flags_are_rejected(data, settings, message):
    with pytest.raises(UserError, match=message):
        setup_task(data, **settings).build_model(arguments("--arch", "reluformer"))


@pytest.mark.parametrize("flag", ["--fp16", "--bf16", "--amp"])
def test_a_stock_model_in_half_precision_needs_a_gpu_unless_it_is_trained(data, flag):
    args, task = arguments("--arch", "transformer", "--cpu", flag), setup_task(data)
    with pytest.raises(UserError, match=f"{flag} needs a GPU"):
        task.build_model(args)
    assert task.build_model(args, from_checkpoint=True)


@pytest.mark.parametrize(("eval_bleu_args", "max_len"), [("{}", (2, 200)), ('{"beam": 2, "max_len_b": 7}', (2, 7))])
def test_validation_translates_whole_documents(data, eval_bleu_args, max_len):
    task = setup_task(data, document_length=16, eval_bleu=True, eval_bleu_args=eval_bleu_args)
    task.build_model(arguments("--arch", "reluformer"))
    assert (task.sequence_generator.max_len_a, task.sequence_generator.max_len_b) == max_len


@pytest.mark.parametrize("separator", ["", "w7"])
def test_validation_does_not_count_separators(data, separator, monkeypatch):
    """Each would be a word that always matches."""
    task, chunks = load_test_set(data, document_length=16, document_separator=separator, eval_bleu=True)
    batch = chunks.collater([chunks[i] for i in range(len(chunks))])
    task.build_model(arguments("--arch", "reluformer"))
    translated = [[{"tokens": strip_pad(tokens, task.tgt_dict.pad())}] for tokens in batch["target"]]
    monkeypatch.setattr(task, "inference_step", lambda *_, **__: translated)
    bleu = task._inference_with_bleu(task.sequence_generator, batch, None)
    words = [word for tokens in batch["target"] for word in task.tgt_dict.string(tokens).split() if word != "<pad>"]
    assert bleu.sys_len == bleu.ref_len == len(words) - (words.count(separator) if separator else 0)
    assert (separator in words) == bool(separator)


def test_translations_of_documents_are_not_truncated():
    """With the flags of configs/ for documents of 2048 tokens. fairseq's default limit is 200 tokens."""
    dataset = require_dataset("europarl7_en_de_2048", Path(__file__).resolve().parents[3] / "configs" / "datasets")
    positions = {name: dataset.train[name] for name in ("--max-source-positions", "--max-target-positions")}
    flags = ["nowhere", "--path", "none", *command_line(dataset.generate | positions)]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_generation_parser(), flags))
    model = build("reluformer", "--decoder-layers", "1", *command_line(positions)).eval()
    generator = TranslationTask(config.task, dictionary(), dictionary()).build_generator([model], config.generation)
    assert min(generator.max_len_a * 2048 + generator.max_len_b, generator.max_len - 1) >= 2047

    batch = sample([(256, 256)])
    best = generator.generate([model], batch, prefix_tokens=batch["target"])[0][0]["tokens"]
    assert best.tolist() == batch["target"][0].tolist()


def find_starts(documents, source, target, limit, separators=False):
    return chunk_starts(documents, np.array(source), np.array(target), limit, separators).tolist()


@st.composite
def corpora(draw):
    documents = draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    sizes = st.lists(st.integers(1, 20), min_size=sum(documents), max_size=sum(documents))
    return documents, draw(sizes), draw(sizes), draw(st.integers(1, 60)), draw(st.booleans())


@given(corpora())
def test_every_sentence_is_in_one_chunk_within_the_limit_and_its_document(corpus):
    documents, source, target, limit, separators = corpus
    starts = find_starts(documents, source, target, limit, separators)
    ends = [*starts[1:], len(source)]
    assert starts[0] == 0 and all(start < end for start, end in zip(starts, ends, strict=True))
    boundaries = np.cumsum(documents).tolist()

    def length(sizes, start, end):
        return sum(size - 1 for size in sizes[start:end]) + (end - start - 1) * separators + 1

    for start, end in zip(starts, ends, strict=True):
        longest = max(length(source, start, end), length(target, start, end))
        assert end - start == 1 or longest <= limit
        assert not any(start < boundary < end for boundary in boundaries)
        if end not in boundaries:
            assert max(length(source, start, end + 1), length(target, start, end + 1)) > limit
    for sizes in (source, target):
        expected = [length(sizes, start, end) for start, end in zip(starts, ends, strict=True)]
        assert chunk_sizes(np.array(starts), np.array(sizes), separators).tolist() == expected
