"""What a model's attention does on batches, for the tests of this folder."""

import torch

from relumt.analysis.attention_maps import MapCollector
from relumt.analysis.collectors import AttentionCollector
from relumt.analysis.units import BatchReader
from tests.plugin.model.build import dictionary, sample, task


def observe(collector, model, batches):
    """Let a collector observe the model on each batch; return its result."""
    for batch in batches:
        with collector.observe(batch), torch.no_grad():
            model(**batch["net_input"])
    return collector.result()


def measured(model, batches, reader=None, **settings):
    """Return the measures of attention by module, by default of subwords that are words."""
    return observe(AttentionCollector(model, reader or BatchReader(task(), "none"), **settings), model, batches)


def maps_of(model, batch, count, found=None):
    """Return the attention maps of the first sentences of a batch; `found` is the task, for its dictionaries."""
    return observe(MapCollector(model, found or task(), count), model, [batch])


def one_by_one(pairs):
    """Return the sentences of `sample(pairs)`, each in a batch of its own."""
    whole, pad = sample(pairs), dictionary().pad()
    batches = []
    for row in whole["id"].argsort().tolist():
        source, given = whole["net_input"]["src_tokens"][row], whole["net_input"]["prev_output_tokens"][row]
        source, given = source[source.ne(pad)][None], given[given.ne(pad)][None]
        lengths = torch.tensor([source.shape[1]])
        inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": given}
        batches.append({"net_input": inputs, "target": whole["target"][row][None, : given.shape[1]]})
    return batches
