"""Measure how much of each attention is dead at initialization: shares of zeros in outputs and gradients.

    python benchmarks/dead_attention.py DATA-BIN --config configs/datasets/demo.toml --arch inhibitor

One training batch passes forward and backward through a new model. Unknown flags are passed to fairseq-train. Padding
is not counted. A dead attention has zeros everywhere: it outputs nothing and receives no gradient.
"""

from pathlib import Path

from batches import first_batches
from fairseq_worker import build_trainer
from measurement import relumt_arguments
from timing import benchmark_device, print_origin
from torch import Tensor

import relumt
from relumt.arguments import ArgumentParser
from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.errors import exit_on_user_error
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook, named_attentions
from relumt.runs.dataset_config import require_dataset
from relumt.runs.flags import command_line


def percent_zeros(x: Tensor) -> str:
    """Return the share of exact zeros, in percent."""
    return f"{100 * x.eq(0).double().mean():.1f}"


def main() -> None:
    """Measure, and print the table."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("data_bin")
    parser.add_argument("--config", type=Path, required=True, help="file in configs/datasets: sizes, optimizer, batch")
    args, flags = parser.parse_known_args()
    relumt.register()
    criterion = ["--criterion", "label_smoothed_cross_entropy"]
    train_flags = [*command_line(require_dataset(args.config.stem, args.config.parent).train), *criterion, *flags]
    trainer = build_trainer([*relumt_arguments(args.data_bin, train_flags), *benchmark_device("fp32").train_flags()])
    (batch,) = first_batches(trainer, 1)
    batch, _ = trainer._prepare_sample(batch)
    net_input, padding = batch["net_input"], trainer.task.source_dictionary.pad()
    real = {"encoder": net_input["src_tokens"].ne(padding), "decoder": net_input["prev_output_tokens"].ne(padding)}
    real["cross"] = real["decoder"]
    outputs: dict[str, Tensor] = {}

    def collect(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        outputs[name] = result.output.detach().transpose(1, 2)[real[attention.site]]

    model = trainer.model.train()
    with attention_hook(model, collect, Need.NOTHING):
        loss, *_ = trainer.criterion(model, batch)
    loss.backward()
    print("| attention | zero outputs, % | zero q_proj gradients, % | k_proj, % | v_proj, % |")
    print("|---|---|---|---|---|")
    for name, attention in named_attentions(model).items():
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        shares = [percent_zeros(projection.weight.grad) for projection in projections]
        print(f"| {name} | {percent_zeros(outputs[name])} | " + " | ".join(shares) + " |")
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
