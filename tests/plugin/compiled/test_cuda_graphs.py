"""CUDA graphs compute what their functions do, also for gradients that are summed over batches."""

import pytest
import torch

from relumt.plugin.compiled.cuda_graphs import CudaGraphs, Gradients
from relumt.plugin.compiled.losses import Batch
from tests.plugin.compiled.cases import batches, build


def parameters():
    return [
        torch.nn.Parameter(torch.arange(4.0).view(2, 2)),
        torch.nn.Parameter(torch.ones(3)),
        torch.nn.Parameter(torch.ones(())),
    ]


def test_gradients_are_added_to_buffers():
    weights = parameters()
    gradients = Gradients(weights)
    gradients.written = {0, 1}
    for expected in (1.0, 2.0):  # the second batch of an update adds to the first
        gradients.attach()
        values = torch.stack([(weights[0].T * weights[0]).sum() + weights[1].sum(), weights[1].sum().detach()])
        gradients.add_of(values, torch.tensor([1.0, 5.0]))
        assert weights[0].grad.equal(expected * 2 * weights[0].T) and weights[1].grad.eq(expected).all()
        assert weights[2].grad is None and gradients.written == {0, 1}
    for weight in weights:  # fairseq begins an update in this way
        weight.grad = None
    gradients.attach()
    assert all(weight.grad.eq(0).all() for weight in weights[:2])


def test_gradients_of_a_batch_without_a_graph_are_kept():
    weights = parameters()
    gradients = Gradients(weights)
    gradients.written = {0, 1}
    weights[0].grad = torch.full((2, 2), 7.0)
    gradients.attach()
    assert weights[0].grad is gradients.buffers[0] and weights[0].grad.eq(7).all() and weights[1].grad.eq(0).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["softmax", "reluformer", "inhibitor"])
def test_graphs_agree_with_the_cpu(name, tmp_path):
    trainer = build(tmp_path, name, "--compile")
    model, compiled = trainer.model, trainer.criterion.compiled_losses
    graphs = CudaGraphs(compiled.compute)
    for batch in batches(3):
        tokens = batch["net_input"]["src_tokens"], batch["net_input"]["prev_output_tokens"], batch["target"]
        numbers = torch.tensor(trainer.criterion.numbers(model, batch["ntokens"]))
        results = []
        for device, calls in (("cpu", 1), ("cuda", 4)):  # computed, captured, and replayed twice
            model.to(device)
            for _ in range(calls):
                model.zero_grad()
                inputs = compiled.pad(Batch(*(x.to(device) for x in (*tokens, numbers))))
                values = (compiled.compute if device == "cpu" else graphs)(model, inputs)
                values[0].backward()
                results.append(
                    [values.detach().cpu(), *(x.grad.cpu() for x in model.parameters() if x.grad is not None)]
                )
        for result in results[1:]:
            for found, expected in zip(result, results[0], strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())
    assert len(graphs.graphs) == 3
