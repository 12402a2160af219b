"""Tensors and instructions of `gluon_emulator`: what a warpgroup has in registers, and pointers to global memory."""

import struct
from types import SimpleNamespace

import torch


class Value:
    """A tensor or a scalar in registers; `pending` is set until an asynchronous product is waited for."""

    def __init__(self, x, pending=None):
        self._x, self.pending, self.type = x, pending, SimpleNamespace(layout=None)

    @property
    def x(self):
        assert self.pending is None, "an unfinished product is used"
        return self._x

    @property
    def shape(self):
        return list(self._x.shape)

    def to(self, dtype):
        return Value(self.x.to(dtype))

    def reshape(self, shape):
        return Value(self.x.reshape(shape))

    def permute(self, order):
        return Value(self.x.permute(tuple(order)))

    def expand_dims(self, axis):
        return Value(self.x.unsqueeze(axis))

    def __getitem__(self, index):
        return Value(self.x[index])

    def __index__(self):
        return int(self.x)

    def __bool__(self):
        return bool(self.x)


def raw(x):
    return x.x if isinstance(x, Value) else x


def define_operators():
    def compute(work, a, b):
        """Compute in the wider type, also if it is a scalar's, which PyTorch would convert to the other type."""
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            dtype = torch.promote_types(a.dtype, b.dtype)
        else:
            dtype = torch.result_type(a, b)
        return Value(work(torch.as_tensor(a, dtype=dtype), torch.as_tensor(b, dtype=dtype)))

    def define(name, work):
        setattr(
            Value, f"__{name}__", lambda a, b: NotImplemented if isinstance(b, Pointer) else compute(work, a.x, raw(b))
        )
        setattr(Value, f"__r{name}__", lambda a, b: compute(work, raw(b), a.x))

    def not_negative(work):
        def checked(a, b):
            assert a.ge(0).all(), "division of a negative number: Triton rounds to 0"
            return work(a, b)

        return checked

    for name in ("add", "sub", "mul", "truediv", "and", "or", "xor", "lshift", "rshift"):
        define(name, lambda a, b, name=name: getattr(a, f"__{name}__")(b))
    define("floordiv", not_negative(lambda a, b: a // b))
    define("mod", not_negative(lambda a, b: a % b))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Value, f"__{name}__", lambda a, b, name=name: Value(getattr(torch, name)(a.x, raw(b))))
    Value.__hash__ = None


class Pointer:
    """Offsets into the memory of a tensor."""

    def __init__(self, memory, at=0):
        self.memory, self.at = memory, at
        self.dtype = SimpleNamespace(element_ty=memory.dtype)

    @classmethod
    def from_tensor(cls, x):
        length = x.untyped_storage().nbytes() // x.element_size()
        return cls(torch.as_strided(x, (length,), (1,), 0), x.storage_offset())

    def __add__(self, offset):
        return Pointer(self.memory, self.at + torch.as_tensor(raw(offset)).long())

    def locations(self, mask):
        at = torch.as_tensor(self.at)
        mask = torch.as_tensor(True if mask is None else raw(mask))
        at, mask = torch.broadcast_tensors(at, mask)
        assert (at[mask] >= 0).all() and (at[mask] < len(self.memory)).all(), "access outside a tensor"
        return at, mask


def load(pointer, mask=None, other=0):
    at, mask = pointer.locations(mask)
    x = torch.full(at.shape, other, dtype=pointer.memory.dtype)
    x[mask] = pointer.memory[at[mask].long()]
    return Value(x)


def store(pointer, value, mask=None):
    at, mask = pointer.locations(mask)
    pointer.memory[at[mask].long()] = raw(value).broadcast_to(at.shape)[mask].to(pointer.memory.dtype)


def integer(x):
    """Return a scalar as a kernel has it."""
    return Value(torch.tensor(x, dtype=torch.int32))


def integers(start, stop=None, step=1):
    start, stop = (0, start) if stop is None else (start, stop)
    return (integer(i) for i in range(int(start), int(stop), int(step)))


def permute_bytes(x, selector):
    """Return PTX's prmt.b32 of x, x: byte 8 + i of the selector repeats the sign of byte i."""
    result = torch.zeros_like(x)
    for i in range(4):
        nibble = torch.as_tensor(selector) >> (4 * i) & 15
        byte = x.int() >> ((nibble & 3) * 8).int() & 0xFF
        byte = torch.where(nibble >= 8, (byte >> 7) * 0xFF, byte)
        result |= byte << 8 * i
    return result


def round_pairs(even, odd, dtype, relu, saturate):
    pair = torch.stack([even, odd], -1)
    pair = pair.clamp(min=0) if relu else pair
    pair = pair.clamp(-65504, 65504) if saturate else pair
    return pair.to(dtype).view(torch.int32)[..., 0]


def shift_left(x, by):
    return torch.where(by >= 32, 0, x.int() << by.clamp(max=31).int())


def multiply_wide(a, b):
    product = (a.long() & 0xFFFFFFFF) * (b.long() & 0xFFFFFFFF)  # wraps, but keeps its 64 bits
    return product.int(), (product >> 32).int()


def float_of(asm):
    """Return the constant of an instruction, whose bits are hexadecimal digits after 0f."""
    return struct.unpack(">f", bytes.fromhex(asm.partition("0f")[2][:8]))[0]


def inline_asm(asm, constraints, arguments, dtype, is_pure, pack):
    """Compute what an instruction that the kernels use computes."""
    args = torch.broadcast_tensors(*(torch.as_tensor(raw(x)) for x in arguments))
    if asm.startswith("cvt.rn"):
        half = torch.bfloat16 if "bf16" in asm else torch.float16
        result = round_pairs(*args, half, "relu" in asm, "satfinite" in asm)
    elif asm.startswith(("mov.b32 {$0, $1}", "mov.b64 {$0, $1}")):
        return tuple(Value(x) for x in args[0].contiguous().view(dtype[0]).unflatten(-1, (-1, 2)).unbind(-1))
    elif "set.gt.u32" in asm:
        half = torch.bfloat16 if "bf16" in asm else torch.float16
        result = (args[0].contiguous().view(half) > 0).short().neg().view(torch.int32)
    elif "0xBB99" in asm:
        result = args[0] & permute_bytes(shift_left(args[1], args[2]), 0xBB99)
    elif "mul.wide.u32" in asm:
        return tuple(Value(x) for x in multiply_wide(*args))
    elif asm.startswith("prmt"):
        result = permute_bytes(*args)
    elif asm.startswith("add.rn"):
        half = torch.bfloat16 if "bf16" in asm else torch.float16
        result = (args[0].contiguous().view(half) + args[1].contiguous().view(half)).view(torch.int32)
    elif asm.startswith("lg2"):
        result = args[0].log2()
    elif asm.startswith("max.NaN"):
        result = args[0].clamp(min=float_of(asm))
    elif "min.NaN" in asm:
        result = args[0].clamp(-65504, 65504)
    else:
        raise NotImplementedError(asm)
    return Value(result)


def reduce(x, axis, combine):
    parts = [Value(part) for part in x.x.unbind(axis)]
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part)
    return total


define_operators()
