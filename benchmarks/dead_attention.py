"""How much of each attention is alive at step 0: shares of exact zeros in its outputs and its projections' gradients.

    python benchmarks/dead_attention.py DATA-BIN --config configs/datasets/demo.toml --arch inhibitor

One training batch, forward and backward, in a fresh model. Flags that this script does not know go to fairseq-train.
Padded positions are left out. A dead attention has zeros everywhere: it gives nothing and nothing reaches it.
"""

import argparse
from pathlib import Path

from timing import benchmark_device
from torch import Tensor
from training_speed import batches, build

import relumt
from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.errors import exit_on_user_error
from relumt.modules import MechanismAttention
from relumt.modules.hooks import attention_hook, named_attentions
from relumt.runs.dataset_config import require_dataset
from relumt.runs.flags import command_line


def zeros(x: Tensor) -> str:
    """Share of exact zeros, in per cent."""
    return f"{100 * x.eq(0).double().mean():.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("data_bin")
    parser.add_argument("--config", type=Path, required=True, help="file in configs/datasets: sizes, optimizer, batch")
    args, flags = parser.parse_known_args()
    relumt.register()
    criterion = ["--criterion", "label_smoothed_cross_entropy"]
    of_model = [*command_line(require_dataset(args.config.stem, args.config.parent).train), *criterion, *flags]
    trainer = build(args.data_bin, of_model, benchmark_device("fp32"))
    (batch,) = batches(trainer, 1)
    batch, _ = trainer._prepare_sample(batch)
    net_input, padding = batch["net_input"], trainer.task.source_dictionary.pad()
    real = {"encoder": net_input["src_tokens"].ne(padding), "decoder": net_input["prev_output_tokens"].ne(padding)}
    real["cross"] = real["decoder"]
    outputs = {}

    def collect(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        outputs[name] = result.output.detach().transpose(1, 2)[real[attention.site]]

    model = trainer.model.train()
    with attention_hook(model, collect, Need.NOTHING):
        loss, *_ = trainer.criterion(model, batch)
    loss.backward()
    print("| attention | zero outputs, % | zero gradients of q_proj, % | of k_proj, % | of v_proj, % |")
    print("|---|---|---|---|---|")
    for name, attention in named_attentions(model).items():
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        shares = [zeros(projection.weight.grad) for projection in projections]
        print(f"| {name} | {zeros(outputs[name])} | " + " | ".join(shares) + " |")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
