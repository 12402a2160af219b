"""Training with --compile computes what training without it does."""

import functools
import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

from relumt.attention.kernels import dispatch
from relumt.errors import UserError
from relumt.plugin.compiled import features, losses
from relumt.plugin.compiled.losses import Batch, CompiledLosses, round_up
from tests.plugin.compiled.cases import FLAGS, MODELS, batches, build, loss_and_gradients
from tests.plugin.model.build import sample, write_data_bin


@pytest.fixture
def only_traced(monkeypatch):
    """Let `torch.compile` trace, so that a graph break is an error, but generate no code."""
    torch._dynamo.reset()
    traced = functools.cache(lambda function: torch.compile(function, fullgraph=True, backend="eager"))
    monkeypatch.setattr(losses, "compiled", traced)
    monkeypatch.setattr(CompiledLosses.compute, "__defaults__", (traced,))


def assert_equal(found, expected, tolerance):
    (loss, log, gradients), (expected_loss, expected_log, expected_gradients) = found, expected
    torch.testing.assert_close(loss, expected_loss, atol=0, rtol=tolerance)
    assert log == pytest.approx(expected_log, rel=10 * tolerance, abs=1e-4)
    assert gradients.keys() == expected_gradients.keys()
    largest = max(x.abs().max() for x in expected_gradients.values())
    for name, gradient in gradients.items():
        error = (gradient - expected_gradients[name]).abs().max()
        # The bias of softmax's keys changes nothing: its gradient is rounding alone.
        assert error <= 10 * tolerance * max(expected_gradients[name].abs().max(), 1e-3 * largest), name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "reluformer")) for name in MODELS]
)
def test_losses_logs_and_gradients_are_equal_for_all_lengths_by_one_program(name, only_traced, tmp_path):
    ours, theirs = build(tmp_path, name, "--compile"), build(tmp_path, name)
    programs = []
    for batch in batches(8):
        assert_equal(loss_and_gradients(ours, batch), loss_and_gradients(theirs, batch), 1e-5)
        programs.append(counters["stats"]["unique_graphs"])
    assert len(set(programs)) == 1


@pytest.mark.slow
def test_long_calls_recompute_their_weights_as_without_compile(only_traced, monkeypatch, tmp_path):
    monkeypatch.setattr(dispatch, "RECOMPUTE_THRESHOLD", 1)
    ours, theirs = build(tmp_path, "rela_g", "--compile"), build(tmp_path, "rela_g")
    for batch in batches(2):
        assert_equal(loss_and_gradients(ours, batch), loss_and_gradients(theirs, batch), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--encoder-learned-pos", "--decoder-learned-pos")])
def test_few_positions_and_single_sentences_are_served_in_training_and_validation(flags, only_traced, tmp_path):
    short = ("--max-source-positions", "11", "--max-target-positions", "11", *flags)
    ours, theirs = build(tmp_path, "reluformer", "--compile", *short), build(tmp_path, "reluformer", *short)
    programs = []
    for batch in (sample([(11, 11)]), sample([(1, 1)]), sample([(1, 5), (1, 2)]), sample([(5, 1)])):
        assert_equal(loss_and_gradients(ours, batch), loss_and_gradients(theirs, batch), 1e-5)
        found = [dict(trainer.valid_step(batch)) for trainer in (ours, theirs)]
        assert found[0] == pytest.approx(found[1], rel=1e-5)
        programs.append(counters["stats"]["unique_graphs"])
    assert len(set(programs)) == 1
    assert len(ours.criterion.compiled_losses.warm) == 2


def test_hooks_of_others_see_the_model(only_traced, tmp_path):
    trainer = build(tmp_path, "softmax", "--compile")
    seen = []
    (batch,) = batches(1)
    for module in trainer.model.modules():  # as fairseq looks for the first NaN
        module.register_forward_hook(lambda *_: seen.append(1))
    loss_and_gradients(trainer, batch)
    assert len(seen) > 50


@pytest.mark.slow
def test_compiling_leaves_random_numbers_and_gradients_as_they_are(only_traced, tmp_path):
    trainer = build(tmp_path, "softmax", "--compile", "--dropout", "0.3", "--attention-dropout", "0.3")
    (batch,) = batches(1)
    results = []
    for _ in range(2):  # the first step compiles
        torch.manual_seed(7)
        results.append(loss_and_gradients(trainer, batch)[0])
    torch.manual_seed(8)
    assert results[0] == results[1] != loss_and_gradients(trainer, batch)[0]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--encoder-layerdrop", "0.1"), "no LayerDrop"),
        (("--checkpoint-activations",), "no --checkpoint-activations"),
        (("--log-attention-interval", "10"), "no --log-attention-interval"),
        (("--quant-noise-pq", "0.1"), "no quantization noise"),
        (("--arch", "transformer"), "a model of relumt on a single device"),
        (("--report-accuracy",), "neither --adaptive-softmax-cutoff"),
    ],
)
def test_what_cannot_be_compiled_is_refused(flags, reason, only_traced, tmp_path):
    trainer = build(tmp_path, "softmax", "--compile", *flags)
    with pytest.raises(UserError, match=f"--compile needs .*{reason}.*; change the flags, or drop --compile"):
        trainer.train_step(batches(1))


def test_layers_that_training_replaces_are_refused(tmp_path):
    with pytest.raises(UserError, match="--compile cannot be combined with --quantization-config-path"):
        build(tmp_path, "softmax", "--compile", "--quantization-config-path", "pq.yaml")


def test_cudnn_computes_softmax_where_shapes_repeat():
    seen = []
    step = CompiledLosses(
        lambda *_: seen.append(torch.backends.cuda.cudnn_sdp_enabled()) or {"loss": torch.ones(())}, (1, 1)
    )
    step.warm = {(True, True)}
    tokens = torch.full((2, 4), 5)
    step(torch.nn.Linear(1, 1), Batch(tokens, tokens, tokens, torch.ones(1)))
    assert seen == [True] and not torch.backends.cuda.cudnn_sdp_enabled()


def test_lengths_are_rounded_up_to_few_that_are_at_most_an_eighth_longer():
    rounded = {n: round_up(n) for n in range(2, 2049)}
    assert all(n <= found <= n * 1.125 for n, found in rounded.items())
    assert [rounded[n] for n in (2, 15, 16, 17, 31, 33, 64, 65, 2047)] == [2, 15, 16, 18, 32, 36, 64, 72, 2048]
    assert round_up(1) == 2 and len(set(rounded.values())) == 15 + 8 * 7


def test_batches_are_padded_at_the_end():
    step = CompiledLosses(lambda *_: {}, (3, 4))
    source, target = torch.full((2, 17), 9), torch.full((2, 33), 8)
    padded = step.pad(Batch(source, target, target, torch.ones(1)))
    assert [x.shape[1] for x in padded[:3]] == [18, 36, 36] and padded.numbers is not None
    assert padded.src_tokens[:, 17:].eq(3).all() and padded.target[:, 33:].eq(4).all()
    assert padded.src_tokens[:, :17].equal(source)
    alone = step.pad(Batch(source[:1], target[:1, :1], target[:1, :1], torch.ones(1)))
    assert [tuple(x.shape) for x in alone[:3]] == [(2, 18), (2, 2), (2, 2)]
    assert alone.src_tokens[1].eq(3).all() and alone.target[1].eq(4).all()


def test_the_table_of_positions_grows(tmp_path):
    model = build(tmp_path, "softmax").model
    few = model.encoder.embed_positions.weights.clone()
    model.encoder.max_source_positions = model.decoder.max_target_positions = 4000
    features.grow_positions(model)
    for side in (model.encoder, model.decoder):
        assert len(side.embed_positions.weights) > 8001
        assert side.embed_positions.weights[: len(few)].equal(few)


@pytest.mark.slow
def test_the_step_is_one_graph_if_it_is_not_compiled_in_parts(tmp_path):
    torch._dynamo.reset()
    trainer = build(tmp_path, "reluformer")
    (batch,) = batches(1)
    tokens = batch["net_input"]["src_tokens"], batch["net_input"]["prev_output_tokens"], batch["target"]
    numbers = torch.tensor(trainer.criterion.numbers(trainer.model, batch["ntokens"]))
    trainer.model.train()
    explained = torch._dynamo.explain(trainer.criterion.compute_losses)(
        trainer.model, Batch(*tokens, numbers), lambda function: function
    )
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_updates_have_equal_losses(name, tmp_path):
    torch._dynamo.reset()
    ours, theirs = build(tmp_path, name, "--compile"), build(tmp_path, name)
    for batch in batches(100):
        found = []
        for trainer in (ours, theirs):
            trainer.model.eval()
            with torch.no_grad():
                found.append(trainer.criterion(trainer.model, batch)[0].item())
            trainer.train_step([batch])
        assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.slow
def test_a_killed_and_resumed_training_ends_in_the_same_bits(tmp_path):
    data = write_data_bin(tmp_path / "data", [(3 + i % 17, 2 + i % 13) for i in range(60)], "train")
    write_data_bin(data, 8 * [(5, 6)], "valid")
    small = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-layers 2 --decoder-layers 2".split()
    flags = (*small, "--encoder-attention-heads", "2", "--decoder-attention-heads", "2", "--dropout", "0.1")
    common = [str(data), "--user-dir", "relumt", *FLAGS, *MODELS["reluformer"], *flags, "--compile", "--cpu"]
    common += ["--max-tokens", "80", "--optimizer", "adam", "--num-workers", "0", "--update-epoch-batch-itr", "True"]

    def train(folder, updates):
        command = [sys.executable, "-m", "fairseq_cli.train", *common, "--save-dir", tmp_path / folder]
        subprocess.run([*command, "--max-update", str(updates)], check=True, capture_output=True)
        return torch.load(tmp_path / folder / "checkpoint_last.pt", weights_only=False)["model"]

    whole = train("whole", 12)
    train("parts", 7)
    resumed = train("parts", 12)
    assert all(resumed[name].equal(x) for name, x in whole.items())
