"""What is measured, most important first. This module needs no package, so that the parent process starts at once."""

from dataclasses import dataclass

DROPOUT = 0.1
VERIFIED_LENGTHS = ((512, 512), (127, 127), (129, 129), (640, 640), (2048, 2048), (200, 700), (700, 200))
"""Pairs of T and S. 640 is not a multiple of 192, and at 2048 there are more tiles than programs."""
FEW_LENGTHS = ((512, 512), (129, 129), (640, 640), (200, 700), (700, 200))
SHORT_AND_LONG = (256, 512, 1024, 2048)
"""Timed n: for 256, it is open which kernels are faster with these options."""
VERIFIED_BATCH, TIMED_BATCH, WIDTH = 3, 16, 512
CACHE_SETTINGS = {"TRITON_CACHE_DIR": ".", "TRITON_STORE_BINARY_ONLY": "1"}
"""Environment of processes that use a cache, which is also their working directory.

Triton stores the paths of the files in its cache. They are relative here, so that another machine can have the cache in
another folder.
"""


@dataclass(frozen=True)
class Job:
    """What a process does.

    Attributes:
        kernel: what a row of the table is about.
        config: a name for the configuration in the table.
        dtype: dtype of q, k and v.
        head_dim: D; there are WIDTH / D heads.
        padded, causal, per_query, dropout, row_stats, row_grads: which options the calls use. per_query is whether each
            query has a factor of its own, as with a causal mask, and row_grads whether the row sums have gradients.
        activation: a power of ReLU.
        normalized: whether the calls are those of `relu_l1`, with a bias, one row sum and its gradient.
        lengths: T and S of the calls that are verified.
        timed: n of those that are timed.
        module: the module whose `run` does it.
        patience: how many times a job's usual limit it may take.
    """

    kernel: str
    config: str
    dtype: str = "bfloat16"
    head_dim: int = 64
    padded: bool = False
    causal: bool = False
    per_query: bool = False
    dropout: bool = False
    row_stats: bool = False
    row_grads: bool = False
    activation: str = "relu"
    normalized: bool = False
    lengths: tuple[tuple[int, int], ...] = FEW_LENGTHS
    timed: tuple[int, ...] = (512, 1024, 2048)
    module: str = "kernel_jobs"
    patience: int = 1


ALL_OPTIONS = dict.fromkeys(("padded", "causal", "per_query", "dropout", "row_stats"), True)
MASKS = dict.fromkeys(("padded", "causal", "dropout"), True)
KERNEL_JOBS = [
    Job("relumt", "causal", causal=True, per_query=True, timed=SHORT_AND_LONG),
    Job("relumt", "row stats", row_stats=True, row_grads=True, timed=SHORT_AND_LONG),
    Job("relumt", "plain", lengths=VERIFIED_LENGTHS, timed=(128, 256, 512, 1024, 2048, 4096)),
    Job("relumt", "fp16", "float16", timed=(2048,)),
    Job("relumt", "all options", **ALL_OPTIONS, row_grads=True, timed=(2048,)),
    Job("relumt", "padding", padded=True),
    Job("relumt", "dropout", dropout=True, timed=SHORT_AND_LONG),
    Job("relumt", "causal, padding, dropout", causal=True, per_query=True, padded=True, dropout=True, timed=(2048,)),
    Job("relumt", "all options, fp16", "float16", **ALL_OPTIONS, row_grads=True, timed=()),
    Job("relumt", "row stats without gradients, dropout", row_stats=True, dropout=True, timed=(2048,)),
    Job("relumt", "relu2", activation="relu2", timed=SHORT_AND_LONG),
    Job("relumt", "L1 norm, p = 8", activation="relu8", normalized=True, timed=SHORT_AND_LONG),
    Job("relumt", "L1 norm, p = 8, all options", activation="relu8", normalized=True, **MASKS, timed=(2048,)),
]
WIDE_JOBS = [
    Job("relumt", "128, plain", head_dim=128, lengths=VERIFIED_LENGTHS, timed=(512, 1024, 2048, 4096)),
    Job("relumt", "128, row stats", head_dim=128, row_stats=True, row_grads=True),
    Job("relumt", "128, causal", head_dim=128, causal=True, per_query=True),
    Job("relumt", "128, dropout", head_dim=128, dropout=True),
    Job("relumt", "128, L1 norm, p = 8", head_dim=128, activation="relu8", normalized=True),
    Job("relumt", "128, all options", head_dim=128, **ALL_OPTIONS, row_grads=True, timed=(2048,)),
]
"""Heads of 128, whose configurations begin with this, so that the report compares them with cuDNN's."""
BASELINES = Job("baselines", "", module="baselines")
WIDE_BASELINES = Job("baselines", "128, ", head_dim=128, module="baselines")
PRESENT_JOBS = [
    Job("Triton", "plain", timed=(128, 256, 512, 1024, 2048), module="present_jobs"),
    Job("Triton", "row stats", row_stats=True, row_grads=True, timed=SHORT_AND_LONG, module="present_jobs"),
    Job("Triton", "causal", causal=True, per_query=True, timed=SHORT_AND_LONG, module="present_jobs"),
    Job("Triton", "dropout", dropout=True, timed=SHORT_AND_LONG, module="present_jobs"),
    Job("Triton", "relu2", activation="relu2", timed=SHORT_AND_LONG, module="present_jobs"),
    Job("Triton", "L1 norm, p = 8", activation="relu8", normalized=True, timed=SHORT_AND_LONG, module="present_jobs"),
]
COMPILED_JOBS = [
    Job("compiled", "plain", timed=(256, 1024), module="compiled_jobs", patience=2),
    Job("compiled", "dropout", dropout=True, timed=(256, 1024), module="compiled_jobs"),
]
COUNTERS = Job("ncu", "plain", timed=(2048,), module="counters", patience=3)
JOBS = [
    *(WIDE_JOBS[0], WIDE_BASELINES, *KERNEL_JOBS[:5], BASELINES, *COMPILED_JOBS, *WIDE_JOBS[1:]),
    *(PRESENT_JOBS[0], *KERNEL_JOBS[5:], *PRESENT_JOBS[1:], COUNTERS),
]
STAND_INS = [
    Job("stand-in on the CPU", config, module="stand_ins") for config in ("computes", "counts", "hangs", "raises")
]
PROBE = Job("probe", "versions", module="probe")
