"""Run the Hopper kernels on a CPU, with their barriers and asynchronous products, to test them without a GPU.

The kernels' source is executed with other modules in place of Gluon. The warpgroups and the loading warp of a program
are threads; one runs at a time, and a seeded generator chooses the next one where they meet. TMA writes at once,
and a product reads its operands only when it is waited for, so a buffer that is released too early gives wrong numbers.
A deadlock, an access outside a tensor, and a use of an unfinished product raise an error. Layouts are not emulated.
"""

import builtins
import random
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import tree_map

from tests.attention.gluon_values import Pointer, Value, inline_asm, integer, integers, load, raw, reduce, store

KERNELS = "relumt.attention.kernels.hopper."
FOLDER = Path(__file__).parents[2] / KERNELS.replace(".", "/")


class Shared:
    """A buffer in shared memory."""

    def __init__(self, x):
        self.x, self.dtype = x, x.dtype

    def index(self, i):
        return Shared(self.x[int(i)])

    def reshape(self, shape):
        return Shared(self.x.reshape(shape))

    def permute(self, order):
        return Shared(self.x.permute(tuple(order)))


class Barriers:
    """Barriers in shared memory."""

    def __init__(self, num):
        self.barriers = [SimpleNamespace(count=0, arrived=0, bytes=0, phase=0) for _ in range(num)]

    def index(self, i):
        return self.barriers[int(i)]


def update(barrier, arrivals=0, num_bytes=0):
    barrier.arrived += arrivals
    barrier.bytes += num_bytes
    assert barrier.arrived <= barrier.count, "more arrivals than a barrier expects"
    if barrier.arrived == barrier.count and barrier.bytes == 0:
        barrier.phase, barrier.arrived = barrier.phase + 1, 0


class Program:
    """The threads of a program; one runs at a time."""

    def __init__(self, pid, num_programs, seed):
        self.pid, self.num_programs = pid, num_programs
        self.random = random.Random(seed)
        self.ready, self.error, self.local = {}, None, threading.local()

    def run(self, partitions):
        """Run each (function, arguments) in a thread."""
        events = [threading.Event() for _ in partitions]
        self.ready = dict.fromkeys(range(len(partitions)), lambda: True)
        self.events, self.done = events, threading.Event()
        threads = [threading.Thread(target=self._thread, args=(i, *p), daemon=True) for i, p in enumerate(partitions)]
        for thread in threads:
            thread.start()
        self._next()
        assert self.done.wait(600)
        if self.error:
            raise self.error

    def _thread(self, i, function, arguments):
        self.events[i].wait()
        self.events[i].clear()
        self.local.index, self.local.products = i, []
        try:
            with torch.no_grad():  # a mode of the thread
                function(*arguments)
            assert not self.local.products, "a product is not waited for"
        except BaseException as error:
            self.error = error
        del self.ready[i]
        self._next()

    def _next(self):
        able = [i for i, is_ready in self.ready.items() if is_ready()]
        if self.error is None and self.ready and not able:
            self.error = RuntimeError("deadlock")
        if self.error is not None or not self.ready:
            self.done.set()
            return
        self.events[self.random.choice(able)].set()

    def wait(self, is_ready):
        """Let other threads run until `is_ready`."""
        i = self.local.index
        self.ready[i] = is_ready
        self._next()
        self.events[i].wait()
        self.events[i].clear()


current: list[Program] = []


def arrive(barrier, count):
    update(barrier, count)
    let_others_run()


def let_others_run():
    current[0].wait(lambda: True)


def wait_for(barrier, phase):
    current[0].wait(lambda: barrier.phase % 2 != int(phase))


def copy_by_tma(descriptor, at, barrier, buffer):
    block = torch.zeros(descriptor.block_shape, dtype=buffer.dtype)
    shape = [int(n) for n in descriptor.shape]
    bounds = [(int(i), min(int(i) + n, size)) for i, n, size in zip(at, block.shape, shape, strict=True)]
    if all(start < stop for start, stop in bounds):
        x = torch.as_strided(descriptor.base, shape, descriptor.strides)
        x = x[tuple(slice(*bound) for bound in bounds)]
        block[tuple(slice(n) for n in x.shape)] = x
    assert buffer.x.shape == block.shape
    buffer.x.copy_(block)
    update(barrier, num_bytes=-block.numel() * block.element_size())


def start_product(a, b, acc, use_acc=True, is_async=False):
    assert is_async
    left = a.x if isinstance(a, Value) else None
    initial = acc.x if use_acc and acc.pending is None else None

    def finish():
        x = (a.x if left is None else left).float() @ b.x.float()
        result._x, result.pending = x if initial is None else initial + x, None

    result = Value(torch.empty(a.x.shape[0], b.x.shape[1]), finish)
    current[0].local.products.append(finish)
    return result


def wait_for_products(num_outstanding, deps):
    let_others_run()
    products = current[0].local.products
    while len(products) > num_outstanding:
        products.pop(0)()
    return deps[0] if len(deps) == 1 else deps


def specialize_warps(functions_and_arguments, num_warps, registers):
    current[0].run(functions_and_arguments)


def decorate(function=None, **options):
    return function or decorate


def make_language():
    """Return stand-ins for triton.experimental.gluon.language and its Hopper part."""

    def nothing(*arguments, **options):
        return None

    gl = SimpleNamespace(
        constexpr=lambda x: x, NVMMADistributedLayout=nothing, DotOperandLayout=nothing,
        SliceLayout=nothing, load=load, store=store, reduce=reduce, warp_specialize=specialize_warps,
        inline_asm_elementwise=inline_asm, static_range=range,
        program_id=lambda axis: current[0].pid, num_programs=lambda axis: current[0].num_programs,
        arange=lambda start, stop, layout: Value(torch.arange(start, stop, dtype=torch.int32)),
        zeros=lambda shape, dtype, layout: Value(torch.zeros(shape, dtype=dtype)),
        full_like=lambda x, value: Value(torch.full_like(x.x, value)),
        convert_layout=lambda x, layout, assert_trivial=False: x,
        split=lambda x: tuple(Value(part) for part in x.x.unbind(-1)),
        join=lambda a, b: Value(torch.stack([a.x, b.x], -1)),
        where=lambda c, a, b: Value(torch.where(c.x, raw(a), raw(b))),
        broadcast=lambda *xs: tuple(Value(x) for x in torch.broadcast_tensors(*(x.x for x in xs))),
        minimum=lambda a, b: Value(torch.minimum(torch.as_tensor(raw(a)), torch.as_tensor(raw(b)))),
        maximum=lambda a, b: Value(torch.maximum(torch.as_tensor(raw(a)), torch.as_tensor(raw(b)))),
        cdiv=lambda a, b: (a + b - 1) // b, log2=lambda x: Value(x.x.log2()), abs=lambda x: Value(x.x.abs()),
        allocate_shared_memory=lambda dtype, shape, layout: (
            Barriers(shape[0]) if dtype == torch.int64 else Shared(torch.full(shape, float("nan"), dtype=dtype))
        ),
        **{name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "int16", "int32", "int64")},
    )  # fmt: skip
    hopper = SimpleNamespace(
        mbarrier=SimpleNamespace(
            MBarrierLayout=nothing, init=lambda barrier, count: setattr(barrier, "count", count), wait=wait_for,
            expect=lambda barrier, num_bytes: update(barrier, 1, num_bytes),
            arrive=arrive,
        ),
        tma=SimpleNamespace(async_load=copy_by_tma), fence_async_shared=nothing, warpgroup_mma=start_product,
        warpgroup_mma_wait=wait_for_products,
    )  # fmt: skip
    return gl, hopper


LANGUAGE, HOPPER = make_language()
modules: dict[str, Any] = {}


def import_emulated(name, namespace=None, local=None, names=(), level=0):
    """Import Gluon's stand-ins, and modules of kernels that use them."""
    if name == "triton.experimental":
        return SimpleNamespace(gluon=SimpleNamespace(jit=decorate, constexpr_function=decorate))
    if name == "triton.experimental.gluon":
        return SimpleNamespace(language=LANGUAGE)
    if name.endswith(".hopper"):
        return HOPPER
    if name not in modules:
        path = FOLDER / f"{name.removeprefix(KERNELS)}.py"
        modules[name] = ModuleType(name)
        own_builtins = vars(builtins) | {"__import__": import_emulated, "range": integers}
        vars(modules[name])["__builtins__"] = own_builtins
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), vars(modules[name]))
    return modules[name]


def convert(x):
    """Return what stands for an argument."""
    if isinstance(x, torch.Tensor):
        return Pointer.from_tensor(x)
    if hasattr(x, "block_shape"):
        return SimpleNamespace(**vars(x) | {"dtype": x.base.dtype, "shape": [integer(n) for n in x.shape]})
    return integer(x) if isinstance(x, int) else x


def emulate(kernel, num_programs, arguments, seed=0, first_program=0):
    """Run a kernel of relumt.attention.kernels.hopper with the arguments of its launch, constants included."""
    function = getattr(import_emulated(f"{KERNELS}{kernel.__module__.removeprefix(KERNELS)}"), kernel.__name__)
    converted = tree_map(convert, arguments)
    for pid in range(first_program, num_programs):
        current[:] = [Program(pid, num_programs, seed + pid)]
        function(*converted)
