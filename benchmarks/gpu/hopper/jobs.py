"""What is measured, most important first. This module needs no package, so that the parent process starts at once."""

from dataclasses import dataclass

DROPOUT = 0.1
VERIFIED_SHAPES = [(2, 8, n, 64) for n in (512, 640, 2048)]
"""B, H, n and D. 640 is not a multiple of 192, and at 2048 there are more tiles than programs.

B*H is a multiple of 16, as in TIMED_SHAPES, so that Triton specializes a kernel in the same way for all shapes.
"""
TIMED_SHAPES = [(16, 8, n, 64) for n in (512, 1024, 2048)]
CACHE_SETTINGS = {"TRITON_CACHE_DIR": ".", "TRITON_STORE_BINARY_ONLY": "1"}
"""Environment of processes that use a cache, which is also their working directory.

Triton stores the paths of the files in its cache. They are relative here, so that another machine can have the cache in
another folder.
"""


@dataclass(frozen=True)
class Job:
    """What a process does.

    Attributes:
        kernel: "forward", "dq" or "dkdv", or what else a row of the table is about.
        config: number of warpgroups that compute, such as "3wg"; dkdv has only "2wg".
        row_stats, cubic: whether the forward kernel computes row statistics, and some of their logarithms by a cubic.
        rounds: rounds of Philox for dropout; 0 is no dropout.
        writes_bits: whether dkdv stores the bits that dq reads.
        module: the module whose `run` does it.
    """

    kernel: str
    config: str
    row_stats: bool = False
    cubic: bool = False
    rounds: int = 0
    writes_bits: bool = False
    module: str = "kernel_jobs"

    @property
    def label(self) -> str:
        """The configuration in the table."""
        options = {
            "row stats": self.row_stats,
            "cubic logarithms": self.cubic,
            f"dropout {DROPOUT}, Philox {self.rounds}": self.rounds,
            "writes bits": self.writes_bits,
        }
        return ", ".join([self.config, *(name for name, value in options.items() if value)])


KERNEL_JOBS = [
    Job("forward", "3wg"),
    Job("dq", "2wg"),
    Job("dkdv", "2wg"),
    Job("forward", "2wg"),
    Job("forward", "3wg", row_stats=True),
    Job("forward", "2wg", row_stats=True),
    Job("dq", "3wg"),
    Job("dkdv", "2wg", writes_bits=True),
    Job("forward", "2wg", rounds=10),
    Job("forward", "3wg", rounds=10),
    Job("forward", "2wg", rounds=7),
    Job("forward", "2wg", row_stats=True, cubic=True),
]
JOBS = [
    Job("baselines", "first", module="baselines"),
    *KERNEL_JOBS,
    Job("baselines", "again", module="baselines"),
]
STAND_INS = [Job("stand-in on the CPU", config, module="stand_ins") for config in ("computes", "hangs", "raises")]
PROBE = Job("probe", "versions", module="probe")
