"""The papers' corpora as tasks, and BLEU in validation, which equals sacreBLEU on all batches at once."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from sacrebleu.metrics import BLEU
from sacremoses import MosesDetokenizer

from relumt.plugin.tasks.documents import BleuValidation, DocumentsTask
from tests.plugin.model.build import arguments, dictionary, sample, task, trainer

LENGTHS = [(7, 9), (3, 8), (5, 6), (6, 6)]


@pytest.mark.parametrize(
    ("name", "languages"),
    [("translation_iwslt14", "de-en"), ("translation_wmt14", "en-de"), ("translation_europarl7", "en-de")],
)
def test_tasks_are_registered_with_their_languages(name, languages):
    parsed = arguments("--task", name, "--arch", "reluformer")
    assert issubclass(TASK_REGISTRY[name], DocumentsTask)
    assert f"{parsed.source_lang}-{parsed.target_lang}" == languages


def test_both_validation_scores_equal_sacrebleu(tmp_path, monkeypatch):
    batches = [sample(LENGTHS), sample(LENGTHS[:2], seed=3)]
    flags = ["--task", "translation_iwslt14", "--eval-bleu", "--eval-bleu-detok", "moses"]
    flags += ["--eval-bleu-args", '{"beam": 2}']
    trained = trainer(tmp_path, "--arch", "mechanism_transformer", *flags)
    bleu_task = TASK_REGISTRY["translation_iwslt14"](trained.cfg.task, dictionary(), dictionary())
    model = bleu_task.build_model(trained.cfg.model)
    references = []
    for batch in batches:
        references += [bleu_task.tgt_dict.string(row[row.ne(1)]) for row in batch["target"]]
    hypotheses = [" ".join([*line.split()[:-2], "w1"]) for line in references]
    remaining = iter(hypotheses)

    def translate(generator, models, batch):
        lines = [next(remaining) for _ in batch["target"]]
        return [[{"tokens": bleu_task.tgt_dict.encode_line(line, add_if_not_exist=False)}] for line in lines]

    monkeypatch.setattr(bleu_task, "inference_step", translate)
    criterion = task().build_criterion(trained.cfg.criterion)
    with torch.no_grad():
        logs = [bleu_task.valid_step(batch, model.eval(), criterion)[2] for batch in batches]
    with metrics.aggregate() as logged:
        bleu_task.reduce_metrics(logs, criterion)
    values = logged.get_smoothed_values()
    torch.save(logged.state_dict(), tmp_path / "meters.pt")  # as a checkpoint keeps them
    assert torch.load(tmp_path / "meters.pt", weights_only=True)
    expected = BLEU(tokenize="none", force=True).corpus_score(hypotheses, [references]).score
    assert 0 < expected < 100
    assert values["bleu"] == pytest.approx(expected, abs=0.01)
    detokenizer = MosesDetokenizer(lang="en")
    sides = [[detokenizer.detokenize(line.split()) for line in lines] for lines in (hypotheses, references)]
    assert values["bleu_detokenized"] == pytest.approx(BLEU().corpus_score(sides[0], [sides[1]]).score, abs=0.01)
    assert values["loss"] > 0


def test_plain_text_is_split_as_its_language_needs(monkeypatch):
    monkeypatch.setattr(FairseqTask, "valid_step", lambda *_: (0.0, 1, {}))
    validation = BleuValidation(SimpleNamespace(eval_bleu=True, eval_bleu_print_samples=True, target_lang="zh-CN"))
    monkeypatch.setattr(validation, "translate", lambda *_: (["他 在 公 园 里 。"], ["他 在 公 园 。"]))
    log = validation.valid_step({}, None, None)[2]
    assert (log["_bleu_detokenized_8"], log["_bleu_detokenized_9"]) == (6, 5)  # lengths of both sides
