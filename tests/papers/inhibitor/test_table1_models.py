"""The layer and the four models, their losses and scores, against independent computations."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from nltk import edit_distance

from relumt.attention import MultiheadAttention
from relumt.papers.inhibitor.table1 import MECHANISMS
from relumt.papers.inhibitor.table1_data import PADDING, PRESETS, draw_sequences
from relumt.papers.inhibitor.table1_models import (
    TASKS,
    EncoderLayer,
    accuracy,
    ctc_loss,
    decode_greedily,
    edit_distances,
    levenshtein,
    squared_error,
)

B, T, E, H = 2, 5, 8, 2


@pytest.fixture
def x():
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def key_mask():
    return torch.tensor([[True] * T, [True] * (T - 2) + [False] * 2])


def build(mechanism, **options):
    torch.manual_seed(0)
    return MultiheadAttention(E, H, batch_first=True, mechanism=mechanism, **options).double()


@pytest.mark.parametrize("distance", [1.0, 2.0])
def test_the_inhibitor_starts_at_the_distance_of_the_settings(distance):
    torch.manual_seed(0)
    settings = replace(PRESETS["small"]["mnist"], initial_distance=distance)
    attention, inputs = EncoderLayer(settings, "inhibitor").attention, torch.randn(100, 64)
    with torch.no_grad():
        q, k = (projection(inputs).unflatten(-1, (4, 16)) for projection in (attention.q_proj, attention.k_proj))
        distances = torch.cdist(q.transpose(0, 1), k.transpose(0, 1), p=1) / 4
    assert distances.mean().item() == pytest.approx(distance, rel=0.1)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_padding_does_not_change_the_other_tokens(mechanism, x, key_mask):
    small = replace(PRESETS["smoke"]["adding"], length=T, embed_dim=E, feed_forward_dim=2 * E)
    layer, x = EncoderLayer(small, mechanism), x.float()
    changed = torch.where(key_mask.unsqueeze(-1), x, -x)
    with torch.no_grad():
        before, after = layer(x, key_mask), layer(changed, key_mask)
        torch.testing.assert_close(after[key_mask], before[key_mask])
        assert not layer(changed)[1, 0].allclose(layer(x)[1, 0])


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("task", "inputs", "shape"),
    [
        ("adding", draw_sequences(3, 100, seed=1).tensors[0], (3,)),
        ("mnist", torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8), (3, 10)),
        ("imdb", torch.tensor([[5, 4, *[PADDING] * 198], [1, 2] * 100]), (2, 2)),
        ("iam", torch.randint(0, 256, (3, 32, 128), dtype=torch.uint8), (3, 32, 30)),
    ],
)
def test_models_have_outputs_of_the_right_shape_and_gradients_everywhere(mechanism, task, inputs, shape):
    torch.manual_seed(0)
    model = TASKS[task].model(PRESETS["small"][task], mechanism, 30)
    outputs = model(inputs)
    assert outputs.shape == shape
    outputs.pow(2).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    projection = model.layer.attention.q_proj.weight.grad
    assert projection.abs().max() > 0


def test_both_mechanisms_start_with_the_same_weights_except_the_scale_of_queries_and_keys():
    models = []
    for mechanism in MECHANISMS:
        torch.manual_seed(0)
        models.append(TASKS["mnist"].model(PRESETS["smoke"]["mnist"], mechanism, 0).state_dict())
    differing = {name for name in models[0] if not models[0][name].equal(models[1][name])}
    prefix = "layer.attention"
    assert differing == {f"{prefix}.q_proj.weight", f"{prefix}.k_proj.weight"}


def test_edit_distances_are_those_of_nltk():
    random = torch.Generator().manual_seed(0)
    words = [torch.randint(0, 3, (length,), generator=random).tolist() for length in (0, 1, 2, 4, 5, 7)]
    for first, second in itertools.product(words, words):
        assert levenshtein(first, second) == edit_distance(first, second)


@pytest.mark.parametrize(("best", "word"), [([0, 1, 1, 0, 1, 2], [1, 1, 2]), ([0, 0], []), ([3, 3], [3])])
def test_greedy_decoding_merges_neighbors_before_it_drops_blanks(best, word):
    assert decode_greedily(torch.tensor(best)) == word


def test_mean_edit_distances_with_and_without_padding():
    best = torch.tensor([[1, 0, 2, 2], [3, 0, 0, 0]])
    logits = torch.nn.functional.one_hot(best, 4).float()
    labels = torch.tensor([[1, 2, 0, 0], [1, 3, 3, 0]])
    # "12" for "12" takes 0 edits and "3" for "133" two. With different padding, "12__" for "12--" takes two
    # substitutions and "3___" for "133-" four.
    assert edit_distances(logits, labels) == {"edit distance": 1.0, "edit distance, padded": (2 + 4) / 2}


def test_ctc_is_the_sum_over_all_alignments():
    torch.manual_seed(0)
    logits, label = torch.randn(1, 4, 3), [1, 2]
    probabilities = logits[0].softmax(-1)
    total = sum(
        math.prod(probabilities[t, symbol].item() for t, symbol in enumerate(path))
        for path in itertools.product(range(3), repeat=4)
        if decode_greedily(torch.tensor(path)) == label
    )
    loss = ctc_loss(logits, torch.tensor([[*label, 0]]))
    assert loss.item() == pytest.approx(-math.log(total) / len(label), rel=1e-5)


def test_a_word_that_is_too_long_for_ctc_has_no_loss():
    assert ctc_loss(torch.randn(1, 2, 3), torch.tensor([[1, 1, 1]])).item() == 0


def test_accuracy_and_squared_error_are_in_percent():
    assert accuracy(torch.eye(4), torch.tensor([0, 1, 2, 0])) == {"accuracy": 75.0}
    assert squared_error(torch.tensor([1.0, 1.0]), torch.tensor([1.1, 1.0]))["mse"] == pytest.approx(0.5, rel=1e-5)


def test_a_review_is_classified_by_the_mean_of_its_words():
    torch.manual_seed(0)
    model = TASKS["imdb"].model(PRESETS["smoke"]["imdb"], "softmax", 9).eval()
    tokens = torch.tensor([[5, 4, *[PADDING] * 18]])
    with torch.no_grad():
        words = model.layer(model.embedding(tokens), tokens != PADDING)[:, :2]
        torch.testing.assert_close(model(tokens), model.head(words.mean(1)))
