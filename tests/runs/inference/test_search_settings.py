"""The search of a run: every flag of fairseq's generation is followed, named as ignored, or known not to matter."""

from dataclasses import fields

import pytest

from relumt.attention.variant_spec import flag_name
from relumt.plugin.registration import PenaltyGenerationConfig
from relumt.runs.inference.search import UNSUPPORTED_FLAGS, SearchSettings, search_of_run
from tests.runs.cases import scored_record, with_value

CHANGES_NO_TRANSLATION = {
    *("nbest", "print_alignment", "print_step", "sacrebleu", "no_beamable_mm", "no_early_stop", "no_seed_provided"),
    *("sampling_topk", "sampling_topp", "diverse_beam_strength"),  # not without --sampling and --diverse-beam-groups
    *("decoding_format", "eos_token", "retain_iter_history"),  # read by other tasks only
}
"""The flags of other models and tasks end in _mt or begin with iter_decode_."""


def test_no_flag_that_changes_translations_is_dropped_in_silence():
    known = {field.name for field in fields(SearchSettings)} | CHANGES_NO_TRANSLATION
    named = {
        name
        for field in fields(PenaltyGenerationConfig)
        if not (name := field.name).startswith(("_", "iter_decode_")) and not name.endswith("_mt")
    }
    assert {flag_name(name) for name in named - known} <= set(UNSUPPORTED_FLAGS)


@pytest.mark.parametrize("flags", [{"--retain-dropout": ""}, {"--lm-path": "lm.pt", "--lm-weight": "0.3"}])
def test_flags_that_are_not_followed_are_named(flags, capsys):
    record = with_value(scored_record(), "evaluations.test.setup.flags", {"--beam": "4"} | flags)
    assert search_of_run(record) == SearchSettings(beam=4)
    assert f"was evaluated with {' '.join(flags)}; translating without" in capsys.readouterr().err
