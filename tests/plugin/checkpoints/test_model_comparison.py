"""A training goes on from a checkpoint of the same model only, whatever the shapes of its weights."""

import pytest

from relumt.attention import MECHANISMS
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.errors import UserError
from relumt.plugin.checkpoints.averaging import refuse_other_embeddings, refuse_other_model
from relumt.plugin.options import SITES
from tests.plugin.model.build import arguments

SOFTMAX = ("--arch", "mechanism_transformer")


def difference(stored: tuple[str, ...], requested: tuple[str, ...]) -> str:
    """Return what the error says to differ, "" if there is none."""
    try:
        refuse_other_model(arguments(*stored), arguments(*requested), "last.pt")
    except UserError as error:
        text = str(error)
        assert text.startswith("last.pt: belongs to another model, with ") and text.count("\n") == 0
        return text.removeprefix("last.pt: belongs to another model, with ").split("; train")[0]
    return ""


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_other_attention_is_refused_at_any_site(name, site):
    flags = (*SOFTMAX, f"--attention-{site}", name)
    assert difference(flags, flags) == ""
    expected = "" if name == "softmax" else f"attention at the site '{site}' {name} (now softmax)"
    assert difference(flags, SOFTMAX) == expected


@pytest.mark.parametrize("name", sorted(FEEDFORWARDS))
def test_another_feedforward_layer_is_refused(name):
    expected = "" if name == "stock" else f"feedforward at the site 'encoder' stock (now {name})"
    assert difference(SOFTMAX, (*SOFTMAX, "--feedforward-encoder", name)) == expected


def test_architectures_are_compared_by_what_they_build():
    assert difference(("--arch", "transformer"), SOFTMAX) == ""
    assert "relu" in difference(("--arch", "reluformer"), ("--arch", "transformer"))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--encoder-attention-heads", "4"), "--encoder-attention-heads 2 (now 4)"),
        (("--decoder-normalize-before",), "--decoder-normalize-before False (now True)"),
        (("--activation-fn", "gelu"), "--activation-fn relu (now gelu)"),
        (("--no-scale-embedding",), "--no-scale-embedding False (now True)"),
        (("--attention-gate", "headwise"), ""),  # its parameters are missing in the checkpoint, which fairseq finds
        (("--dropout", "0.3"), ""),
        (("--attention", "relu", "--relu-gamma", "2"), "--relu-gamma 1.0 (now 2.0)"),
        (("--attention", "relu", "--relu-initial-score", "0.2"), ""),
        (("--attention", "inhibitor", "--inhibitor-shift", "1"), "--inhibitor-shift 0.5 (now 1.0)"),
        (("--attention", "inhibitor", "--inhibitor-implementation", "naive"), ""),
    ],
)
def test_settings_that_change_what_weights_compute_are_refused(flags, expected):
    stored = {"--relu-gamma": ("--relu-gamma", "1"), "--inhibitor-shift": ("--inhibitor-shift", "0.5")}
    mechanism = flags[:2] if flags[0] == "--attention" else ()
    assert difference((*SOFTMAX, *mechanism, *stored.get(flags[-2:][0], ())), (*SOFTMAX, *flags)) == expected
    if mechanism:
        assert difference((*SOFTMAX, *mechanism), (*SOFTMAX, *flags)) == "", "an older version did not store it"


OUTPUT, ALL = "--share-decoder-input-output-embed", "--share-all-embeddings"


@pytest.mark.parametrize(
    ("stored", "requested", "named"),
    [
        ((), (ALL,), ALL),
        ((OUTPUT,), (ALL,), ALL),
        ((), (OUTPUT,), OUTPUT),
        ((ALL,), (ALL,), None),
        ((ALL,), (), None),  # each of the three begins as a copy
        ((OUTPUT,), ("--attention", "relu", OUTPUT), None),
    ],
)
def test_separate_embeddings_are_not_merged(stored, requested, named):
    def check():
        refuse_other_embeddings(arguments(*SOFTMAX, *stored), arguments(*SOFTMAX, *requested), "x.pt")

    if named is None:
        check()
    else:
        with pytest.raises(UserError, match=f"x.pt: has separate embeddings, and {named} would keep only"):
            check()


def test_another_vocabulary_is_refused():
    stored, requested = arguments(*SOFTMAX), arguments(*SOFTMAX)
    stored.vocabulary_fingerprint, requested.vocabulary_fingerprint = "a" * 12, "b" * 12
    with pytest.raises(UserError, match="the vocabulary aaaaaaaaaaaa"):
        refuse_other_model(stored, requested, "last.pt")
    with pytest.raises(UserError, match=r"x.pt: was trained with another vocabulary; prepare the data with its dictio"):
        refuse_other_embeddings(stored, requested, "x.pt")
    del stored.vocabulary_fingerprint
    refuse_other_embeddings(stored, requested, "x.pt")
