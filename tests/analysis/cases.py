"""What a model's attention does on batches, for the tests of this folder."""

import torch

from relumt.analysis.attention_maps import MapCollector
from relumt.analysis.collectors import AttentionCollector
from relumt.analysis.units import BatchReader
from relumt.cli import main
from tests.plugin.model.build import dictionary, sample, task, write_data_bin

LENGTHS = [(7, 5), (3, 8), (4, 2)]
"""Numbers of source and target tokens in the data of `write_report`."""


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


def write_report(folder, checkpoint_with, *flags):
    """Write the report on a softmax model with trained activations, a ReLU, an inhibitor and a model with negative
    weights; return its path."""
    data = folder / "data-bin"
    for subset in ("train", "test"):
        write_data_bin(data, LENGTHS, subset)
    (folder / "gold").write_text("0-0 1p1\n0-0\n0-0 90-0\n")
    (folder / "out").mkdir()
    (folder / "out" / "maps-9.pt").write_bytes(b"of an earlier analysis")
    activations = ("--feedforward-encoder", "aptx1", "--feedforward-decoder", "relu_gt")
    checkpoints = [checkpoint_with("--attention", "softmax", *activations)]
    checkpoints += [checkpoint_with("--attention", name) for name in ("relu", "inhibitor", "rela_g_gelu")]
    main(["analyze", *map(str, checkpoints), "--data", str(data), "--out", str(folder / "out"),
          "--alignments", str(folder / "gold"), *flags])  # fmt: skip
    return folder / "out" / "report.html"
