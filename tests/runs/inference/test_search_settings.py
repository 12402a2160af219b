"""The search of a run: every flag of fairseq's generation is followed, named as ignored, or known not to matter."""

from dataclasses import fields

from relumt.attention.variant_spec import flag_name
from relumt.plugin.registration import PenaltyGenerationConfig
from relumt.runs.inference.search import UNSUPPORTED_FLAGS, SearchSettings

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
