"""Translation in bf16 on a CPU, on tiny models: any CPU can compute them, slowly."""

from types import SimpleNamespace

import pytest
import torch

from relumt.errors import UserError
from relumt.plugin import cpu_products
from relumt.plugin.search.generator import BeamSearchGenerator
from tests.plugin.model.build import build, dictionary, sample

LENGTHS = [(7, 5), (3, 8), (1, 2)]
WORDS = 300


def settings(bf16):
    """Return what fairseq-generate passes to a model, as far as it is read."""
    generation = SimpleNamespace(no_beamable_mm=False, beam=4, print_alignment=None, retain_dropout=False)
    return SimpleNamespace(common=SimpleNamespace(bf16=bf16, cpu=True), generation=generation)


def translate(model, bf16, **options):
    model.prepare_for_inference_(settings(bf16))
    generator = BeamSearchGenerator([model], dictionary(WORDS), beam_size=4, max_len_b=8, **options)
    return generator.generate([model], sample(LENGTHS))


@pytest.fixture
def fast_bf16(monkeypatch):
    monkeypatch.setattr(cpu_products, "has_fast_bf16", lambda: True)


@pytest.mark.usefixtures("fast_bf16")
@pytest.mark.parametrize("arch", ["mechanism_transformer", "reluformer", "rela", "inhibitor"])
@pytest.mark.parametrize("options", [{}, {"match_source_len": True}], ids=["own search", "fairseq's search"])
def test_translates_in_bf16(arch, options):
    model = build(arch, words=WORDS).eval()
    dtypes = set()
    hook = model.decoder.layers[0].fc1.register_forward_hook(lambda _, __, output: dtypes.add(output.dtype))
    in_bf16, in_fp32 = (translate(model, bf16, **options) for bf16 in (True, False))
    hook.remove()
    assert dtypes == {torch.bfloat16, torch.float32}
    for ours, exact in zip(in_bf16, in_fp32, strict=True):
        assert ours[0]["score"].item() == pytest.approx(exact[0]["score"].item(), rel=0.02)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.usefixtures("fast_bf16", "restored_fp32_backend")
@pytest.mark.parametrize("bf16", [True, False])
def test_attention_copies_no_keys_and_values_at_each_step(bf16):
    torch.set_float32_matmul_precision("medium")
    model = build("reluformer", words=WORDS).eval()
    layer = model.decoder.layers[0]
    calls = {"decoder": [], "cross": []}
    precision = torch.get_float32_matmul_precision
    for attention in (layer.self_attn, layer.encoder_attn):
        attention.mechanism.register_forward_pre_hook(
            lambda _, inputs, site=attention.site: calls[site].append((*inputs[:3], precision()))
        )
    translate(model, bf16)
    assert all(tensor.dtype == torch.float32 for site in calls.values() for call in site for tensor in call[:3])
    assert all(k.is_contiguous() and v.is_contiguous() for _, k, v, _ in calls["cross"])
    # Products of a prefix, which is never contiguous, are MKL's, and only these.
    assert {found for *_, found in calls["decoder"]} == {"highest"}
    assert {found for *_, found in calls["cross"]} == {"medium"} == {precision()}


@pytest.mark.parametrize(
    ("has_gpu", "message"),
    [(False, "--bf16 needs a CPU with AVX512-BF16 or AMX"), (True, "drop the flag to translate in fp32 on the GPU")],
)
def test_bf16_without_effect_is_refused(monkeypatch, has_gpu, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(cpu_products, "has_fast_bf16", lambda: has_gpu)
    given = settings(bf16=True)
    given.common.cpu = False
    with pytest.raises(UserError, match=message):
        build("reluformer").prepare_for_inference_(given)
    if has_gpu:
        given.common.cpu = True
        build("reluformer").prepare_for_inference_(given)
