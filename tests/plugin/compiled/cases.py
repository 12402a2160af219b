"""Models and batches for tests of --compile."""

import torch

from tests.plugin.model.build import sample, trainer

MODELS = {
    "softmax": ("--arch", "mechanism_transformer"),
    "reluformer": (
        *("--arch", "reluformer", "--criterion", "label_smoothed_cross_entropy_with_attention_regularization"),
        *("--relu-initial-score", "0.3", "--attention-entropy-bound", "0.3"),
    ),
    "rela_g": ("--arch", "rela", "--attention", "rela_g"),
    "inhibitor": ("--arch", "inhibitor"),
    "others": (
        *("--arch", "mechanism_transformer", "--encoder-learned-pos", "--decoder-learned-pos", "--layernorm-embedding"),
        *("--encoder-normalize-before", "--decoder-normalize-before", "--decoder-output-dim", "8"),
        *("--attention-qk-norm", "log_n", "--attention-gate", "headwise"),
        *("--attention-cross", "relu_l1", "--relu-l1-power", "8"),
    ),
}
"""Name → flags; "others" has what the papers' models lack."""

FLAGS = (
    *("--criterion", "fused_label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--source-lang", "de"),
    *("--target-lang", "en", "--lr", "7e-4", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000"),
    *("--share-decoder-input-output-embed",),
)


def build(folder, name, *flags):
    """Build fairseq's trainer of a model of MODELS."""
    torch.manual_seed(1)
    flags = (*FLAGS, *MODELS[name], *flags)
    return trainer(folder, *(flag for flag in flags if name != "others" or flag != FLAGS[-1]))


def batches(count):
    """Batches of three to five sentences of different lengths, some of them padded."""
    lengths = torch.randint(2, 40, (count, 5, 2), generator=torch.Generator().manual_seed(1)).tolist()
    return [sample([tuple(pair) for pair in pairs[: 3 + i % 3]], seed=i) for i, pairs in enumerate(lengths)]


def loss_and_gradients(trainer, batch):
    """The loss, what is logged, and the gradients of all parameters."""
    trainer.zero_grad()
    trainer.model.train()
    loss, sample_size, log = trainer.criterion(trainer.model, batch)
    loss.backward()
    gradients = {name: x.grad for name, x in trainer.model.named_parameters() if x.grad is not None}
    return loss.detach(), {"sample size": sample_size} | {name: float(x) for name, x in log.items()}, gradients
