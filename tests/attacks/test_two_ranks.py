"""If one of two processes that train together is killed, the job ends at once and resumes to the same bits."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attacks.attack import ROOT
from tests.attacks.training import COPIES, hash_training_state
from tests.plugin.model.build import SMALL, write_data_bin

MAX_SECONDS = 60
"""Time within which the job must end after one of its processes was killed."""

FLAGS = f"""--source-lang de --target-lang en --user-dir {ROOT / "relumt"} --arch reluformer
--criterion label_smoothed_cross_entropy_with_attention_regularization --label-smoothing 0.1
--optimizer adam --lr 1e-3 --max-tokens 60
--max-update 60 --save-interval-updates 4 --keep-interval-updates 2 --no-epoch-checkpoints
--update-epoch-batch-itr True --log-format json --log-interval 1
--cpu --distributed-world-size 2 --distributed-init-method env:// --distributed-no-spawn
--distributed-backend gloo --ddp-backend legacy_ddp""".split()

ONE_PROCESS = '"$0" -P -m fairseq_cli.train "$@" --distributed-rank "$RANK"'
"""What torchrun starts twice: fairseq reads the rank from the environment only where there are GPUs."""


@dataclass
class Job:
    """Two processes that train together and save checkpoints in a folder."""

    data_bin: Path
    checkpoints: Path

    @property
    def output(self) -> Path:
        """File with the output of all starts."""
        return self.checkpoints.with_suffix(".output")

    def run(self, rank: int | None = None, is_due: Callable[["Job"], bool] | None = None) -> int:
        """Train; kill the process with this rank as soon as it is due. Returns the exit status of torchrun."""
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        train = ["bash", "-c", f"exec {ONE_PROCESS}", sys.executable, str(self.data_bin), *SMALL, *FLAGS]
        command = [*torchrun, "--no-python", *train, "--dropout", "0.1", "--save-dir", str(self.checkpoints)]
        settings = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with self.output.open("a") as output:
            process = subprocess.Popen(command, env=settings, stdout=output, stderr=output)
        if rank is not None:
            while not is_due(self):
                assert process.poll() is None, f"the job ended too early; see {self.output}"
                time.sleep(0.001)
            os.kill(child_with_rank(process.pid, rank), signal.SIGKILL)
        return process.wait(timeout=600 if rank is None else MAX_SECONDS)

    def has_reached(self, update: int) -> bool:
        """Whether the log has this update or a later one."""
        log = self.output.read_text(errors="replace") if self.output.exists() else ""
        updates = re.findall(r'train_inner \| .*"num_updates": "(\d+)"', log)
        return bool(updates) and int(updates[-1]) >= update

    def is_saving(self) -> bool:
        """Whether a checkpoint is half-saved."""
        return any(not name.endswith(".pt") for name in os.listdir(self.checkpoints))


def child_with_rank(parent: int, rank: int) -> int:
    """Return the process with this rank that torchrun has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (child,) = [
        pid for pid in children if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
    return int(child)


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_and_it_resumes_to_the_same_bits(tmp_path):
    lengths = random.Random(1)
    for subset, size in (("train", 36), ("valid", 8)):
        write_data_bin(
            tmp_path / "bin", [(lengths.randint(1, 20), lengths.randint(1, 20)) for _ in range(size)], subset
        )
    undisturbed, killed = (Job(tmp_path / "bin", tmp_path / name) for name in ("undisturbed", "killed"))
    assert undisturbed.run() == 0
    assert killed.run(rank=1, is_due=lambda job: job.has_reached(10)) == 1
    assert killed.run(rank=0, is_due=lambda job: job.has_reached(30) and job.is_saving()) == 1
    assert killed.run() == 0
    for name in COPIES:
        assert hash_training_state(killed.checkpoints / name) == hash_training_state(undisturbed.checkpoints / name)
    assert not killed.is_saving(), "a half-saved checkpoint was left behind"
