"""The papers' corpora as tasks."""

import pytest
from fairseq.tasks import TASK_REGISTRY

from relumt.plugin.tasks.documents import DocumentsTask
from tests.plugin.model.build import arguments


@pytest.mark.parametrize(
    ("name", "languages"),
    [("translation_iwslt14", "de-en"), ("translation_wmt14", "en-de"), ("translation_europarl7", "en-de")],
)
def test_tasks_are_registered_with_their_languages(name, languages):
    parsed = arguments("--task", name, "--arch", "reluformer")
    assert issubclass(TASK_REGISTRY[name], DocumentsTask)
    assert f"{parsed.source_lang}-{parsed.target_lang}" == languages
