"""How calls reach the kernels for Hopper, and calls with unusual values and sizes; in `gluon_emulator`."""

from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_map

pytest.importorskip("triton.experimental.gluon")
from relumt.attention.kernels import checked_calls
from relumt.attention.kernels.hopper import cached_launch, launch, prepare, selection
from relumt.attention.kernels.hopper.arguments import KernelConfig
from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.attention.kernels.self_check import Verdicts, all_configs, verdicts
from relumt.attention.kernels.self_check_pointwise import PointwiseConfig
from tests.attention import gluon_emulator
from tests.attention.gluon_values import Pointer
from tests.attention.test_hopper_kernels import H, emulated, make_call, reference, unpack

__all__ = ["emulated"]  # a fixture that all tests here use, too
D, MIN_LENGTH = 64, 130


@pytest.fixture
def launched(emulated, monkeypatch):
    """Return a list of the kernels that are launched, and let calls of 130 queries and keys use them."""
    kernels = []
    emulate = launch.launch
    monkeypatch.setattr(launch, "launch", lambda kernel, *x: kernels.append(kernel.__name__) or emulate(kernel, *x))
    monkeypatch.setattr(selection, "is_hopper", lambda device: True)
    monkeypatch.setattr(selection, "MIN_LENGTH", MIN_LENGTH)
    monkeypatch.setenv("RELUMT_KERNELS", "experimental")
    return kernels


@pytest.fixture
def asked(monkeypatch):
    """Return a list of the configurations that the self-check is asked for; it allows all."""
    configs = []
    monkeypatch.setattr(Verdicts, "allows", lambda self, config: configs.append(config) or True)
    return configs


def train(attend, length, options):
    """Return what `attend` returns for q, k, v, a key mask and factors, and the gradients."""
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(2, H, length, D, generator=generator).bfloat16().requires_grad_() for _ in range(3))
    key_mask = torch.arange(length) < torch.tensor([[length], [length - 20]]) if "padded" in options else None
    factor = torch.full((2, length if "per_query" in options else 1), 0.01)
    torch.manual_seed(1)
    outputs = [x for x in attend(q, k, v, key_mask, factor) if x is not None]
    return [*outputs, *torch.autograd.grad(sum(x.float().square().sum() for x in outputs), (q, k, v))]


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.slow
@pytest.mark.parametrize("options", ["dropout padded", "row_stats causal per_query"])
def test_one_compiled_graph_serves_all_lengths_by_the_kernels_of_eager_calls(options, launched, asked):
    def attend(q, k, v, key_mask, factor):
        call = (q, k, v, PointwiseParams("relu", factor), key_mask, "causal" in options)
        dropout_p = 0.3 if "dropout" in options else 0.0
        return checked_calls.attend_pointwise(*call, dropout_p, 2 * ("row_stats" in options), q.dtype)

    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (40, MIN_LENGTH, 140):
        launched.clear()
        expected = train(attend, length, options)
        assert len(launched) == (3 if length >= MIN_LENGTH else 0)
        assert all(map(torch.equal, train(compiled, length, options), expected))
        assert launched[len(launched) // 2 :] == launched[: len(launched) // 2]
    assert counters["stats"]["unique_graphs"] == 1
    assert len([x for x in set(asked) if x.kernel == "hopper.launch"]) == 1, "eager and compiled calls differ"


@pytest.mark.parametrize("refused", ["hopper.launch", "pointwise_triton"])
def test_compiled_calls_need_the_self_check_of_all_kernels_that_may_serve_them(refused, launched, monkeypatch):
    monkeypatch.setattr(Verdicts, "allows", lambda self, config: config.kernel != refused)
    arguments = (torch.device("cpu"), "relu", torch.bfloat16, torch.bfloat16, D, *[False] * 6)
    expected = "pointwise_triton" if refused == "hopper.launch" else None
    assert checked_calls._kernel_of_compiled_calls(*arguments) == expected
    monkeypatch.setattr(Verdicts, "allows", lambda self, config: True)
    assert checked_calls._kernel_of_compiled_calls(*arguments) == "hopper.by_length"
    assert checked_calls._kernel_of_compiled_calls(*arguments[:4], 32, *arguments[5:]) == "pointwise_triton"


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("lengths", [(100, 300), pytest.param((150, 131), marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", ["padded dropout", pytest.param("", marks=pytest.mark.slow)])
def test_the_operator_of_compiled_calls_is_what_pytorch_expects(options, lengths, launched):
    """Its fake results have the shapes and strides of real ones, with kernels for Hopper and without."""
    call, *_ = make_call(torch.bfloat16, options.split(), 1, *lengths, seed=1)
    inputs = *(x.requires_grad_() for x in call[:3]), *call[3:], 2, torch.float32, "hopper.by_length"
    torch.library.opcheck(torch.ops.relumt.pointwise.default, inputs)
    assert bool(launched) == (min(lengths) >= MIN_LENGTH)


@pytest.mark.parametrize(
    ("sizes", "dropout_p", "expected"),
    [
        ((1, 130, 130), 0.0, True),
        ((1, 129, 200), 0.0, False),
        ((1, 200, 129), 0.0, False),
        ((0, 200, 200), 0.0, False),
        ((1, 200, 200), 0.003, False),
        ((1, 200, 200), 0.004, True),
        ((1, 200, 200), 0.997, False),
    ],
)
def test_sizes_that_are_served(sizes, dropout_p, expected, launched):
    """TMA cannot describe an empty batch, and dropout is rounded to a multiple of 1/128."""
    B, T, S = sizes
    q, k = (torch.empty(B, H, n, D, dtype=torch.bfloat16) for n in (T, S))
    assert selection.serves(q, k, PointwiseParams("relu", torch.ones(1, 1)), dropout_p) == expected


@pytest.mark.usefixtures("bfloat16", "emulated")
def test_rows_that_dropout_empties_have_no_output_and_no_gradient():
    """A key is kept with probability 1/64, and half of the 129 keys have a weight."""
    call, grad, row_grads = make_call(torch.bfloat16, ["dropout", "per_query"], 2, 127, 129, seed=1)
    call = (*call[:10], 126 / 128)
    output, *_, bits = launch.run_forward(*call, 0, torch.float32)
    grads = launch.run_backward(grad, *row_grads, *call, bits)
    kept = unpack(bits, 127, 129)
    expected, _, _, *expected_grads = reference(call, grad, row_grads, kept)
    for actual, exact in zip((output, *grads), (expected, *expected_grads), strict=True):
        assert (actual.double() - exact).norm() <= 5e-3 * exact.norm()
    empty = expected.eq(0).all(-1)
    assert 0.2 < empty.double().mean() < 0.6
    assert not output[empty].any() and not grads[0][empty].any()


@pytest.mark.parametrize(
    ("activation", "dtype", "has_bias", "has_factor_per_query", "expected"),
    [
        ("relu", torch.float16, False, True, True),
        ("relu2", torch.bfloat16, False, True, True),
        ("relu2", torch.float16, False, True, False),
        ("relu8", torch.bfloat16, True, False, True),
        ("relu8", torch.bfloat16, True, True, False),
        ("relu", torch.float16, True, False, False),
        ("relu", torch.float32, False, False, False),
        ("sigmoid", torch.bfloat16, True, False, False),
    ],
)
def test_mechanisms_that_are_served(activation, dtype, has_bias, has_factor_per_query, expected, launched):
    q = torch.empty(1, H, MIN_LENGTH, D, dtype=dtype)
    factor = torch.ones(1, MIN_LENGTH if has_factor_per_query else 1)
    params = PointwiseParams(activation, factor, torch.ones(1, 1) if has_bias else None)
    assert selection.serves(q, q, params, 0.0) == expected
    assert not selection.serves(q[..., :32], q[..., :32], params, 0.0)


class Addresses:
    """Memory of a tensor that is not allocated; it notes which elements are used."""

    def __init__(self, x):
        self.dtype, self.size = x.dtype, x.untyped_storage().nbytes() // x.element_size()
        self.used = []

    def __len__(self):
        return self.size

    def __getitem__(self, at):
        self.used.append(at.flatten())
        return torch.zeros(at.shape, dtype=self.dtype)

    def __setitem__(self, at, values):
        self.used.append(at.flatten())


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("options", ["", "causal dropout per_query", "row_stats row_grads dropout"])
def test_the_last_of_many_sentences_is_where_its_offset_needs_more_than_32_bits(options, monkeypatch):
    """q has 7·10⁹ elements in 180,000 heads, more than a grid's second dimension could count."""
    B, length = 90_000, 600
    memories = []

    def visit_last_tile(kernel, tiles, *arguments):
        def convert(x):
            if isinstance(x, torch.Tensor) and x.is_meta:
                memories.append(Addresses(x))
                return Pointer(memories[-1])
            if isinstance(x, launch.TensorDescriptor):  # of zeros
                zero = torch.zeros(1, dtype=x.base.dtype)
                return SimpleNamespace(
                    base=zero, shape=x.shape, strides=[0] * 4, block_shape=x.block_shape, layout=None
                )
            return x

        gluon_emulator.emulate(kernel, tiles, tree_map(convert, arguments), first_program=tiles - 1)

    monkeypatch.setattr(launch, "launch", visit_last_tile)
    monkeypatch.setattr(prepare, "launch", lambda *arguments: None)
    q, k, v, grad = (
        torch.empty(B, length, H, D, dtype=torch.bfloat16, device="meta").transpose(1, 2) for _ in range(4)
    )
    factor = torch.empty(B, length if "per_query" in options else 1, device="meta")
    row_grads = [torch.empty(B, H, length, device="meta") if "row_grads" in options else None] * 2
    dropout_p, seed = (0.3, torch.tensor(1)) if "dropout" in options else (0.0, None)
    call = (q, k, v, factor, None, None, None, seed, "relu", "causal" in options, dropout_p)
    kept = launch.run_forward(*call, 2 * ("row_stats" in options), torch.bfloat16)[3]
    launch.run_backward(grad, *row_grads, *call, kept)
    for memory in memories:
        used = torch.cat(memory.used) if memory.used else torch.tensor([memory.size - 1])
        assert memory.size // B * (B - 1) <= used.min() and used.max() < memory.size
    large = [memory for memory in memories if memory.size > 1 << 31 and memory.used]
    assert len(large) >= (6 if "dropout" in options else 4)  # the output, three gradients, and bits


@pytest.mark.parametrize("rows", [64, 128])
def test_descriptors_are_those_that_triton_would_check(rows):
    launch.describe(torch.zeros(2, 300, 3, D).bfloat16().transpose(1, 2), rows)  # is remembered, but not its tensor
    x = torch.zeros(2, 300, 3, D).bfloat16().transpose(1, 2)
    layout = launch.gl.NVMMASharedLayout.get_default_for([1, 1, rows, D], launch.gl.bfloat16)
    checked = launch.TensorDescriptor(x, [2, 3, 300, D], [300 * 3 * D, D, 3 * D, 1], [1, 1, rows, D], layout)
    descriptor = vars(launch.describe(x, rows))
    assert descriptor.pop("base") is x
    assert descriptor == {name: value for name, value in vars(checked).items() if name != "base"}


class RecordingKernel:
    """Stands in for a compiled function: what it compiles returns the number of compilations before it."""

    def __init__(self, name):
        self.__name__, self.compiled, self.launched = name, [], []

    def __getitem__(self, grid):
        def compile_and_launch(*arguments):
            number = len(self.compiled)
            self.compiled.append((grid, arguments))
            return {(n, 1, 1): lambda *given, n=n: self.launched.append((number, n, given)) for n in range(9)}

        return compile_and_launch


def test_a_launch_is_compiled_again_if_anything_but_addresses_and_the_grid_differs(monkeypatch):
    monkeypatch.setattr(cached_launch, "codes", {})
    x = torch.zeros(1, 1, 128, 64).bfloat16()
    kernel = RecordingKernel("kernel")
    first = launch.describe(x, 64), x, None, 3, (x, 0.5)
    calls = [
        (kernel, first, 1),
        (kernel, (launch.describe(x.half(), 64), *first[1:]), 1),
        (kernel, (first[0], x.float(), *first[2:]), 1),
        (kernel, (first[0], x[..., 1:], *first[2:]), 1),  # 2 bytes further
        (kernel, (first[0], x.to("meta"), *first[2:]), 1),
        (kernel, (first[0], None, *first[2:]), 1),
        (kernel, (*first[:2], x, *first[3:]), 1),
        (kernel, (*first[:3], 4, (x, 0.5)), 1),
        (kernel, (*first[:4], (x, 0.25)), 1),
        (kernel, (*first[:4], (x.half(), 0.5)), 1),
        (kernel, (*first[:4], x, 0.5), 1),
        (kernel, first, 2),
        (RecordingKernel("other"), first, 1),
    ]
    for used, arguments, stages in calls:
        cached_launch.launch(used, 5, *arguments, KernelConfig(64, stages))
    assert len(kernel.compiled) == len(calls) - 1 and not kernel.launched
    again = launch.describe(x.clone(), 64), x.clone(), None, 3, (x.clone(), 0.5), KernelConfig(64, 1)
    cached_launch.launch(kernel, 7, *again)
    cached_launch.launch(kernel, 7, *again[:-1], KernelConfig(64, 2))
    (first_number, programs, given), (last_number, *_) = kernel.launched
    assert (first_number, last_number, programs) == (0, len(kernel.compiled) - 1, 7)
    assert all(a is b for a, b in zip(given, again, strict=True))
    monkeypatch.setattr(cached_launch, "MAX_KEPT", len(calls))
    cached_launch.launch(kernel, 5, *first[:3], 5, first[4], again[-1])  # forgets all others
    cached_launch.launch(kernel, 5, *first, again[-1])
    assert len(kernel.compiled) == len(calls) + 1 and len(cached_launch.codes) == 2


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize(
    ("options", "length", "D"),
    [
        ("", MIN_LENGTH, 64), ("row_stats dropout padded causal", 140, 64), ("", MIN_LENGTH - 1, 64),
        ("relu2 causal dropout", MIN_LENGTH, 128), ("relu8 bias sums padded", 140, 128),
    ],
)  # fmt: skip
def test_calls_are_dispatched_and_check_themselves(options, length, D, launched, caplog):
    """Long calls go through the self-check, the operators and their derivatives."""
    verdicts.cache_clear()
    q, k, v = (torch.randn(1, H, length, D).to(torch.bfloat16).requires_grad_() for _ in range(3))
    key_mask = torch.arange(length)[None] < length - 100 if "padded" in options else None
    activation = options.split()[0] if options.startswith("relu") else "relu"
    params = PointwiseParams(activation, torch.full((1, 1), 0.01), torch.ones(1, 1) if "bias" in options else None)
    call = (q, k, v, params, key_mask, "causal" in options, 0.1 if "dropout" in options else 0.0)
    row_sums = 2 * ("row_stats" in options) + ("sums" in options)
    outputs = checked_calls.attend_pointwise(*call, row_sums, torch.float32)
    sum(x.sum() for x in outputs if x is not None).backward()
    gradient_of_q = "backward_dq" if activation == "relu" and not row_sums else "backward_dq_stats"
    assert launched[-3:] == (["forward", "backward_dkdv", gradient_of_q] if length >= MIN_LENGTH else [])
    assert not caplog.records and all(x.grad.isfinite().all() for x in (q, k, v))
    config = PointwiseConfig.from_call(*call[:2], *call[3:], row_sums, torch.float32, "hopper.launch")
    assert length < MIN_LENGTH or verdicts(q.device).reasons == {config: ""}
    assert sum("hopper" in str(config) for config in all_configs(q.device)) == 2 * (16 + 8)  # those of doctor
    verdicts.cache_clear()
