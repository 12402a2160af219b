"""Trains the models of CASES one after another: `python -m tests.plugin.criterions.train_cases FOLDER`.

Started by torchrun, two processes train each model together. One process accumulates two batches per update, so that
the updates have the same batches. FOLDER has a data-bin. What each case computed is written to FOLDER/results.pt.
"""

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.meters import AverageMeter
from fairseq.trainer import Trainer
from fairseq_cli import train

import relumt

REGULARIZED = "--criterion label_smoothed_cross_entropy_with_attention_regularization --attention-entropy-bound 0.1"
PENALIZED = ("softmax", "sparsemax", "entmax15", "sigmoid", "relu_n", "relu", "relu_layernorm", "rela_g")
CASES = {
    "inhibitor": "--attention inhibitor",
    "entmax15 with gates": "--attention entmax15 --attention-gate headwise --feedforward swiglu",
    "rela_g regularized": f"--attention rela_g {REGULARIZED}",
    "relu in the encoder only, regularized": f"--attention-encoder relu {REGULARIZED}",
    "relu regularized, with schedule and margin": f"--attention relu {REGULARIZED} --attention-norm-penalty hinge "
    "--attention-norm-final-weight 0.01 --attention-schedule-updates 3",
    "relu regularized, loss per sentence": f"--attention relu --sentence-avg {REGULARIZED}",
    "relu regularized, statistics logged": f"--attention relu --log-attention-interval 1 {REGULARIZED}",
}
"""Name → flags."""

# A larger epsilon than Adam's default: a gradient that is 0 but for rounding must not decide about an update.
COMMON = """--arch mechanism_transformer --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0
--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-layers 1 --encoder-attention-heads 2
--decoder-layers 1 --decoder-attention-heads 2 --cpu --source-lang de --target-lang en
--optimizer adam --adam-eps 1e-4 --lr 1e-2 --clip-norm 0.5 --max-tokens 60 --max-epoch 2
--disable-validation --no-epoch-checkpoints --num-workers 0 --log-format none"""

DISTRIBUTED = """--distributed-init-method env:// --distributed-world-size 2 --distributed-no-spawn
--distributed-backend gloo --ddp-backend legacy_ddp --distributed-rank"""

SPEEDS = {"wps", "ups", "train_wall", "wall"}


class RecordingTrainer(Trainer):
    """Records its training.

    Attributes:
        updates: for each update, the logged values by name, in full precision.
        batches: for each update, the number of batches of this process that were not empty.
    """

    updates: ClassVar[list[dict[str, float]]] = []
    batches: ClassVar[list[int]] = []

    def train_step(self, samples, raise_oom=False):
        output = super().train_step(samples, raise_oom)
        meters = metrics.get_meters("train").items()
        self.updates.append({name: float(m.val) for name, m in meters if isinstance(m, AverageMeter)})
        self.batches.append(sum(bool(sample) for sample in samples))
        return output


def train_model(folder: Path, name: str) -> dict[str, Any]:
    """Train the model of a case; return what its trainer recorded, and the final weights by name."""
    rank = os.environ.get("RANK")
    processes = ["--update-freq", "2"] if rank is None else [*DISTRIBUTED.split(), rank]
    save_dir = folder / "checkpoints" / name
    words = [str(folder), "--save-dir", str(save_dir), *COMMON.split(), *processes, *CASES[name].split()]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    RecordingTrainer.updates, RecordingTrainer.batches = [], []
    distributed_utils.call_main(config, train.main)
    weights = torch.load(save_dir / "checkpoint_last.pt", weights_only=True)["model"]
    return {"updates": RecordingTrainer.updates, "batches": RecordingTrainer.batches, "weights": weights}


if __name__ == "__main__":
    torch.set_num_threads(1)
    relumt.register()
    train.Trainer = RecordingTrainer
    working_folder = Path(sys.argv[1])
    results = {case: train_model(working_folder, case) for case in CASES}
    if os.environ.get("RANK", "0") == "0":
        torch.save(results, working_folder / "results.pt")
