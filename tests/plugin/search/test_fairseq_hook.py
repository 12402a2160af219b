"""Settings of generation that no search can have end in one line, where fairseq fails with a traceback."""

from argparse import Namespace

import pytest
import torch

from tests.plugin.model.build import build, sample, task

WORDS = 12

REFUSED = {
    "no beam": ({"beam": 0}, "--beam is 0; choose a number from 1"),
    "negative beam": ({"beam": -2}, "--beam is -2; choose a number from 1"),
    "groups": ({"beam": 5, "diverse_beam_groups": 2}, "--diverse-beam-groups 2 does not divide --beam 5"),
    "temperature": ({"temperature": 0.0}, "fairseq cannot search with these flags: --temperature must be greater"),
    "sampling": ({"sampling_topk": 5}, "fairseq cannot search with these flags: --sampling-topk requires --sampling"),
    "two searches": ({"sampling": True, "match_source_len": True}, "mutually exclusive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_settings_are_refused_in_one_line(name, capsys):
    settings, message = REFUSED[name]
    with pytest.raises(SystemExit) as refusal:
        task(WORDS).build_generator([build("mechanism_transformer_tiny", words=WORDS)], Namespace(**settings))
    assert refusal.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 4, "diverse_beam_groups": 2}, {"diverse_beam_groups": -1}])
def test_possible_settings_are_accepted(settings):
    assert task(WORDS).build_generator([build("mechanism_transformer_tiny", words=WORDS)], Namespace(**settings))


def test_alignments_need_no_preparation_of_the_model():
    """Validation with --eval-bleu-args '{"print_alignment": "hard"}' and `from_pretrained` do not prepare it."""
    model = build("mechanism_transformer_tiny").eval()
    generator = task().build_generator([model], Namespace(beam=2, max_len_b=5, print_alignment="hard"))
    with torch.no_grad():
        (hypotheses,) = generator.generate([model], sample([(4, 3)]))
    assert all(link[0] < 5 for link in hypotheses[0]["alignment"]) and len(hypotheses[0]["alignment"]) > 0
