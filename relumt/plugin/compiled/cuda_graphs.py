"""CUDA graphs of a training step's forward and backward pass, one pair per shape.

A step of a small model is a thousand kernels, and starting them takes longer than computing them. A CUDA graph starts
all of them at once, but only for tensors at the same addresses: inputs are copied to where the graph reads them, and
gradients are added where `Gradients` keeps them. A shape's first batch is computed as usual, and its second is
captured. All graphs share their memory, because they run one after another and nothing is read from it later.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

MAX_GRAPHS = 512
"""Further shapes are computed without a graph; each graph takes a few MiB."""

Compute = Callable[[Any, Any], Tensor]
"""(model, batch: a named tuple of tensors) → values, of which the first may have a gradient."""


class CudaGraphs:
    """Computes what `compute` does, with CUDA graphs for shapes that have been seen before."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.seen: set[Any] = set()
        self.graphs: dict[Any, _Graph] = {}
        self.gradients = Gradients([])

    def __call__(self, model: Any, batch: Any) -> Tensor:
        """Return the values of a batch."""
        key = (model.training, torch.is_grad_enabled(), *(x.shape for x in batch))
        if key not in self.graphs:
            if key not in self.seen or len(self.graphs) == MAX_GRAPHS:
                self.seen.add(key)
                return self.compute(model, batch)
            if not self.graphs:
                self.gradients = Gradients([x for x in model.parameters() if x.requires_grad])
            self.graphs[key] = _Graph(self, model, batch)
        return self.graphs[key].run(batch)

    @cached_property
    def pool(self) -> Any:
        """The memory that all graphs share."""
        return torch.cuda.graph_pool_handle()

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        """The stream that is captured."""
        return torch.cuda.Stream()

    @contextmanager
    def capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Capture what is computed inside the block; `torch.cuda.graph` would also empty the cache each time."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(self.pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)


class Gradients:
    """Where the gradients of parameters stay: a buffer for each.

    Args:
        parameters: those that are trained.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        self.buffers = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in parameters]

    def attach(self) -> None:
        """Make the buffers the gradients of the parameters: 0 if these have none yet, else a copy of theirs."""
        if self.parameters[0].grad is self.buffers[0]:
            return
        torch._foreach_zero_(self.buffers)
        for parameter, buffer in zip(self.parameters, self.buffers, strict=True):
            if parameter.grad is not None:  # of a batch without a graph
                buffer.copy_(parameter.grad)
            parameter.grad = buffer

    def add_of(self, values: Tensor, grad_values: Tensor) -> None:
        """Add the gradients of `values`."""
        grads = torch.autograd.grad(values, self.parameters, grad_values, allow_unused=True)
        pairs = [(buffer, grad) for buffer, grad in zip(self.buffers, grads, strict=True) if grad is not None]
        torch._foreach_add_([buffer for buffer, _ in pairs], [grad for _, grad in pairs])


class _Graph:
    """The graphs of one shape, captured for a batch."""

    def __init__(self, graphs: CudaGraphs, model: Any, batch: Any) -> None:
        self.inputs = [x.clone() for x in batch]
        self.gradients = graphs.gradients
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with graphs.capturing(self.forward):
            values = graphs.compute(model, type(batch)(*self.inputs))
        self.has_grad = values.requires_grad
        if self.has_grad:
            self.grad_values = torch.zeros_like(values)
            with graphs.capturing(self.backward):
                self.gradients.add_of(values, self.grad_values)
        self.values = values.detach()

    def run(self, batch: Any) -> Tensor:
        """Return the values of a batch of this shape."""
        for x, new in zip(self.inputs, batch, strict=True):
            x.copy_(new)
        self.forward.replay()
        values = self.values.clone()
        if not self.has_grad:
            return values
        result: Tensor = _Replay.apply(values.new_zeros((), requires_grad=True), values, self)
        return result


class _Replay(torch.autograd.Function):
    """(a scalar that needs a gradient, values, graph) → values, whose backward pass is the graph's."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, values: Tensor, graph: _Graph) -> Tensor:
        ctx.graph = graph
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad_values: Tensor) -> tuple[None, None, None]:
        graph: _Graph = ctx.graph
        graph.grad_values.copy_(grad_values)
        graph.gradients.attach()
        graph.backward.replay()
        return None, None, None
