"""A training goes on from a checkpoint of the same model only, whatever the shapes of its weights."""

from argparse import Namespace

import pytest

from relumt.errors import UserError
from relumt.plugin.checkpoints.averaging import describe_differences, refuse_other_model
from relumt.plugin.options import VARIANT_CHOICES


def difference(stored: dict, requested: dict) -> str:
    return ", ".join(describe_differences(Namespace(**stored), Namespace(**requested)).values())


@pytest.mark.parametrize("choice", VARIANT_CHOICES, ids=lambda choice: choice.name)
def test_another_variant_is_noticed_at_any_site(choice):
    for site in choice.sites:
        for name in choice.registry.keys() - {choice.default}:
            settings = {f"{choice.name}_{site}": name}
            noticed = f"{choice.name} at the site '{site}' {name} (now {choice.default})"
            assert (difference(settings, settings), difference(settings, {})) == ("", noticed)
            everywhere = {choice.name: name} | dict.fromkeys((f"{choice.name}_{other}" for other in choice.sites), name)
            assert difference(everywhere, {choice.name: name}) == ""


RELU, INHIBITOR = {"attention": "relu"}, {"attention": "inhibitor"}


@pytest.mark.parametrize(
    ("common", "old", "new", "expected"),
    [
        ({}, {"encoder_attention_heads": 2}, {"encoder_attention_heads": 4}, "--encoder-attention-heads 2 (now 4)"),
        ({}, {"activation_fn": "relu"}, {"activation_fn": "gelu"}, "--activation-fn relu (now gelu)"),
        ({}, {"dropout": 0.1}, {"dropout": 0.3}, ""),
        ({}, {"relu_gamma": 1.0}, {"relu_gamma": 2.0}, ""),
        (RELU, {"relu_gamma": 1.0}, {"relu_gamma": 2.0}, "--relu-gamma 1.0 (now 2.0)"),
        (RELU, {}, {"relu_gamma": 2.0}, ""),  # an older version did not store it
        (RELU, {"relu_initial_score": 0.1}, {"relu_initial_score": 0.2}, ""),
        (INHIBITOR, {"inhibitor_shift": 0.5}, {"inhibitor_shift": 1.0}, "--inhibitor-shift 0.5 (now 1.0)"),
        (INHIBITOR, {"inhibitor_implementation": "fused"}, {"inhibitor_implementation": "naive"}, ""),
    ],
)
def test_settings_that_change_what_weights_compute_are_noticed(common, old, new, expected):
    assert difference(common | old, common | new) == expected


def test_a_new_training_needs_only_the_same_vocabulary():
    stored, requested = (Namespace(vocabulary_fingerprint=digit * 12) for digit in "ab")
    for is_new_training in (True, False):
        with pytest.raises(UserError, match=r"x.pt: was trained with another vocabulary; prepare the data with its"):
            refuse_other_model(stored, requested, "x.pt", is_new_training)
    requested = Namespace(vocabulary_fingerprint="a" * 12, attention="relu")
    refuse_other_model(stored, requested, "x.pt", is_new_training=True)
    with pytest.raises(UserError, match=r"x.pt: belongs to another model, with attention at the site 'encoder' so"):
        refuse_other_model(stored, requested, "x.pt")
