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
"""(model, batch: a named tuple of tensors) → values; the first may have a gradient."""


class CudaGraphs:
    """Computes what `compute` does, with CUDA graphs for shapes that have been seen before."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.max_graphs = MAX_GRAPHS
        self.seen: set[Any] = set()
        self.graphs: dict[Any, _Graph] = {}
        self.gradients = Gradients([])

    def __call__(self, model: Any, batch: Any) -> Tensor:
        """Return the values of a batch."""
        key = (model.training, torch.is_grad_enabled(), *(x.shape for x in batch))
        if key not in self.graphs:
            if key not in self.seen or len(self.graphs) >= self.max_graphs:
                self.seen.add(key)
                return self.compute(model, batch)
            if not self.graphs:
                self.gradients = Gradients([x for x in model.parameters() if x.requires_grad])
            try:
                self.graphs[key] = _Graph(self, model, batch)
            except torch.OutOfMemoryError:  # graphs cannot use the memory that PyTorch keeps for others
                self.max_graphs = len(self.graphs)
                torch.cuda.empty_cache()
                return self.compute(model, batch)
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

    Attributes:
        written: positions of the parameters that have had a gradient; the others keep none.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        self.buffers = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in parameters]
        self.written: set[int] = set()

    def attach(self) -> None:
        """Make the buffers the gradients of the parameters: 0 if these have none yet, else a copy of theirs."""
        pairs = [(self.parameters[i], self.buffers[i]) for i in self.written]
        if all(parameter.grad is buffer for parameter, buffer in pairs):
            return
        torch._foreach_zero_([buffer for _, buffer in pairs])
        for parameter, buffer in pairs:
            if parameter.grad is not None:  # of a batch without a graph
                buffer.copy_(parameter.grad)
            parameter.grad = buffer

    def add_of(self, values: Tensor, grad_values: Tensor) -> None:
        """Add the gradients of `values`."""
        grads = torch.autograd.grad(values, self.parameters, grad_values, allow_unused=True)
        found = {i: grad for i, grad in enumerate(grads) if grad is not None}
        torch._foreach_add_([self.buffers[i] for i in found], list(found.values()))
        self.written |= found.keys()


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
        if not self.has_grad:
            self.forward.replay()
            return self.values.clone()
        result: Tensor = _Replay.apply(self.values.new_zeros((), requires_grad=True), self)
        return result


class _Replay(torch.autograd.Function):
    """(a scalar that needs a gradient, graph) → its values; both passes are the graph's."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, graph: _Graph) -> Tensor:
        ctx.graph = graph
        graph.forward.replay()
        return graph.values.clone()

    @staticmethod
    def backward(ctx: Any, grad_values: Tensor) -> tuple[None, None]:
        graph: _Graph = ctx.graph
        graph.grad_values.copy_(grad_values)
        graph.gradients.attach()
        graph.backward.replay()
        return None, None
