"""Models of Hugging Face Transformers with relumt's attention, in tiny configurations."""

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MarianConfig,
    StaticCache,
    T5Config,
)

from relumt.attention import MECHANISMS
from relumt.integrations.transformers import PREFIX, register

register()

SIZES = {"vocab_size": 50, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
SEQ2SEQ = {"vocab_size": 50, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1}
MODELS = {
    "bert": (AutoModelForMaskedLM, BertConfig(**SIZES, intermediate_size=64)),
    "gpt2": (AutoModelForCausalLM, GPT2Config(vocab_size=50, n_layer=2, n_head=4, n_embd=32, bos_token_id=0)),
    "llama": (AutoModelForCausalLM, LlamaConfig(**SIZES, num_key_value_heads=2, intermediate_size=64)),
    "marian": (
        AutoModelForSeq2SeqLM,
        MarianConfig(
            **SEQ2SEQ, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
        ),
    ),
    "t5": (AutoModelForSeq2SeqLM, T5Config(**SEQ2SEQ, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)),
}  # fmt: skip

every_model = pytest.mark.parametrize("name", MODELS)
three_mechanisms = pytest.mark.parametrize("mechanism", ["relu", "rela_g", "ssmax"])


def build(name, implementation):
    torch.manual_seed(1)
    auto, config = MODELS[name]
    return auto.from_config(config, attn_implementation=implementation).eval()


def inputs(name, lengths=(7, 4), side="right"):
    torch.manual_seed(2)
    longest = max(lengths)
    positions = torch.arange(longest)[None]
    sizes = torch.tensor(lengths)[:, None]
    mask = positions < sizes if side == "right" else positions >= longest - sizes
    batch = {"input_ids": torch.randint(2, 50, (len(lengths), longest)), "attention_mask": mask.long()}
    if MODELS[name][0] is AutoModelForSeq2SeqLM:
        batch["decoder_input_ids"] = torch.randint(2, 50, (len(lengths), 6))
    return batch, mask


@every_model
@torch.no_grad()
def test_softmax_is_eager_attention(name):
    eager, ours = build(name, "eager"), build(name, PREFIX + "softmax")
    ours.load_state_dict(eager.state_dict())
    for lengths, side in (((7, 4), "right"), ((7, 7), "right"), ((7, 3), "left")):
        batch, mask = inputs(name, lengths, side)
        expected, found = eager(**batch).logits, ours(**batch).logits
        if "decoder_input_ids" not in batch:
            expected, found = expected[mask], found[mask]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@every_model
@three_mechanisms
@torch.no_grad()
def test_padding_and_the_future_change_nothing(name, mechanism):
    model = build(name, PREFIX + mechanism)
    batch, mask = inputs(name)
    before = model(**batch).logits
    padded = dict(batch, input_ids=batch["input_ids"].masked_fill(~mask, 33))
    is_seq2seq = "decoder_input_ids" in batch
    after = model(**padded).logits
    torch.testing.assert_close(after if is_seq2seq else after[mask], before if is_seq2seq else before[mask])
    changed = dict(batch)
    key = "decoder_input_ids" if is_seq2seq else "input_ids"
    changed[key] = batch[key].clone()
    changed[key][:, 3] = 49 - changed[key][:, 3]
    after = model(**changed).logits
    if name != "bert":
        torch.testing.assert_close(after[:, :3], before[:, :3])
    assert not torch.allclose(after[:, 3], before[:, 3])


@pytest.mark.parametrize("name", ["gpt2", "llama", "marian", "t5"])
@three_mechanisms
def test_generation_with_a_cache_is_generation_without(name, mechanism):
    model = build(name, PREFIX + mechanism)
    batch, _ = inputs(name, (5, 3), "left")
    batch.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2, "pad_token_id": 0}
    torch.testing.assert_close(
        model.generate(**batch, use_cache=True, **options), model.generate(**batch, use_cache=False, **options)
    )


@three_mechanisms
@torch.no_grad()
def test_the_empty_part_of_a_static_cache_is_not_seen(mechanism):
    model = build("llama", PREFIX + mechanism)
    ids = inputs("llama", (5, 5))[0]["input_ids"]
    cache = StaticCache(config=model.config, max_cache_len=12)
    torch.testing.assert_close(model(ids, cache=cache).logits, model(ids).logits)
    step = model(ids[:, :1], cache=cache).logits
    torch.testing.assert_close(step, model(torch.cat([ids, ids[:, :1]], 1)).logits[:, -1:])


@every_model
@three_mechanisms
def test_models_train_and_survive_saving(name, mechanism, tmp_path):
    model = build(name, PREFIX + mechanism).train()
    batch, _ = inputs(name)
    labels = batch.get("decoder_input_ids", batch["input_ids"])
    model(**batch, labels=labels).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    torch.optim.SGD(model.parameters(), 0.1).step()
    model.eval().save_pretrained(tmp_path)
    loaded = MODELS[name][0].from_pretrained(tmp_path, attn_implementation=PREFIX + mechanism)
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize("mechanism", ["rela_i", "ssmax", "entmax_learned"])
def test_parameters_that_a_checkpoint_lacks_are_initialized(mechanism, tmp_path):
    build("llama", "eager").save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=PREFIX + mechanism)
    for key, tensor in loaded.state_dict().items():
        if "relumt" in key:
            fresh = MECHANISMS[mechanism](4, 8).state_dict()[key.partition("relumt_mechanism.")[2]]
            assert tensor.isfinite().all() and tensor.std(correction=0).isclose(fresh.std(correction=0), rtol=0.5), key
            assert tensor.abs().max() <= fresh.abs().max() * 1.5


def test_options_come_from_the_configuration_and_are_saved(tmp_path):
    config = BertConfig(**SIZES, intermediate_size=64, relumt={"gamma": 2.0})
    model = AutoModel.from_config(config, attn_implementation=PREFIX + "relu")
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, attn_implementation=PREFIX + "relu")
    assert {m.options.gamma for m in loaded.modules() if type(m).__name__ == "ReLUAttention"} == {2.0}


@torch.no_grad()
def test_a_mask_of_numbers_is_added():
    eager, ours = build("gpt2", "eager"), build("gpt2", PREFIX + "softmax")
    ours.load_state_dict(eager.state_dict())
    batch, _ = inputs("gpt2", (7, 7))
    lowest = torch.finfo(torch.float32).min
    mask = torch.randn(2, 1, 7, 7).masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), lowest)
    batch["attention_mask"] = mask
    torch.testing.assert_close(ours(**batch).logits, eager(**batch).logits, atol=1e-5, rtol=1e-5)


def test_weights_are_returned_on_request():
    model = build("bert", PREFIX + "relu")
    batch, _ = inputs("bert")
    attentions = model(**batch, output_attentions=True).attentions
    assert [weights.shape for weights in attentions] == [(2, 4, 7, 7)] * 2


def test_what_cannot_be_computed_is_refused():
    model = build("gpt2", "eager")
    batch, _ = inputs("gpt2")
    model.set_attn_implementation(PREFIX + "relu")
    assert model(**batch).logits.isfinite().all()
    for name in ("relu2", "relu"):  # relu2 derives from relu
        model.set_attn_implementation(PREFIX + name)
        fresh = build("gpt2", PREFIX + name)
        fresh.load_state_dict(model.state_dict())
        torch.testing.assert_close(model(**batch).logits, fresh(**batch).logits)
    model.set_attn_implementation(PREFIX + "rela_g")
    with pytest.raises(ValueError, match="'rela_g' has parameters, which a model needs from the beginning"):
        model(**batch)
    with pytest.raises(ValueError, match="MambaModel has no attention of an AttentionInterface"):
        AutoModel.from_config(MambaConfig(vocab_size=50, hidden_size=8), attn_implementation=PREFIX + "relu")
    with pytest.raises(ValueError, match="InhibitorAttention computes no scores that could be scaled"):
        build("t5", PREFIX + "inhibitor")(**inputs("t5")[0])
