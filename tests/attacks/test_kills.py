"""Trainings that are killed 20 times end in the bits of one that was left alone: `pytest -m slow` with this file.

Each of the three takes about four minutes on an idle CPU. RELUMT_KILLS sets another number of kills; `-rP` prints the
hashes.
"""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from relumt.cli import main
from relumt.plugin.cpu_products import has_fast_bf16
from tests.attacks.attack import MARKER, ROOT, Attack, processes_with
from tests.attacks.training_state import hash_training_state

pytestmark = [pytest.mark.attack("signals"), pytest.mark.slow]

KILLS = int(os.environ.get("RELUMT_KILLS", "20"))
MAX_UPDATE = 160
LAST_KILL = 130
"""Update before which the last kill is due; what comes after is for its delay."""

FLAGS = f"""--dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1 --max-tokens 256 --max-update {MAX_UPDATE}
--save-interval-updates 4 --keep-interval-updates 2 --log-interval 1""".split()

ONE_CPU_THREAD = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

PRECISIONS = {"fp32": {}, "bf16": {"PRECISION": "bf16"}}
"""Precision → environment variables of the scripts."""

needs_bf16 = pytest.mark.skipif(not has_fast_bf16(), reason="the CPU has no fast bf16")

MOMENTS = ("startup", "update", "saving", "update", "saving")
POLL = 0.0005
"""Seconds between two looks at the log and the checkpoints."""


@dataclass(frozen=True)
class Kill:
    """When to kill a training, and how much of it.

    Attributes:
        moment, update, delay: `delay` seconds after it starts, reaches an update, or begins to save after an update.
        kills_all: send SIGKILL to all processes at once, or only to the process group of the script.
    """

    moment: Literal["startup", "update", "saving"]
    update: int
    delay: float
    kills_all: bool


def plan_kills(seed: str) -> list[Kill]:
    """Return kills in random order, with increasing updates."""
    generator = random.Random(seed)
    updates = sorted(generator.sample(range(1, LAST_KILL), KILLS))
    moments = [MOMENTS[number % len(MOMENTS)] for number in range(KILLS)]
    generator.shuffle(moments)
    longest = {"startup": 8.0, "update": 0.5, "saving": 0.02}
    return [
        Kill(moment, update, generator.uniform(0, longest[moment]), kills_all=generator.random() < 0.7)
        for moment, update in zip(moments, updates, strict=True)
    ]


@dataclass
class Training:
    """scripts/train.sh with a model, in a folder of runs; `unfinished` counts the kills that left a half-saved file."""

    attack: Attack
    model: str
    precision: str
    data_bin: Path
    runs: str
    unfinished: int = 0

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.attack.folder / self.runs / "smoke" / self.model / "1"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / "checkpoints"

    def run(self, kill: Kill | None = None) -> int:
        """Start or resume the training; return its exit status."""
        script = [ROOT / "scripts" / "train.sh", "smoke", self.model, *FLAGS]
        settings = {"RUNS": self.runs, "DATA_BIN": str(self.data_bin)} | ONE_CPU_THREAD | PRECISIONS[self.precision]
        # into a file: a pipe that nobody reads while this process waits for the moment to kill would fill
        command = ["bash", "-c", 'exec "$@" >>output 2>&1', "bash", *script]
        interrupt = None if kill is None else lambda process: self.wait_and_kill(process, kill)
        return self.attack.process(command, env=settings, timeout=600, interrupt=interrupt).status

    def wait_and_kill(self, process: subprocess.Popen[str], kill: Kill) -> None:
        """Wait for the moment; kill the process and all that it started."""
        if kill.moment != "startup":
            for update in self.new_updates(process):
                if update >= kill.update:
                    break
        victims = processes_beside(process) if kill.kills_all else []
        if kill.moment == "saving":
            while process.poll() is None and not self.half_saved():
                time.sleep(POLL)
        time.sleep(kill.delay)
        assert process.poll() is None, f"training ended before {kill}; see {self.attack.folder}/output"
        if kill.moment == "startup" and kill.kills_all:
            victims = processes_beside(process)
        os.killpg(process.pid, signal.SIGKILL)  # first, or the script would say how its children ended
        for victim in victims:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        if kill.moment != "startup":  # which removes what the last kill left
            self.unfinished += bool(self.half_saved())

    def new_updates(self, process: subprocess.Popen[str]) -> Iterator[int]:
        """Yield the numbers of updates that the process logs."""
        log = self.folder / "train.log"
        size = log.stat().st_size if log.exists() else 0
        while process.poll() is None:
            if log.exists():
                with log.open(errors="replace") as file:
                    file.seek(min(size, log.stat().st_size))
                    updates = re.findall(r'train_inner \| .*"num_updates": "(\d+)"', file.read())
                if updates:
                    yield int(updates[-1])
            time.sleep(POLL)

    def half_saved(self) -> list[str]:
        """Return the files that are being saved, or were when a process was killed."""
        if not self.checkpoints.exists():
            return []
        return [name for name in os.listdir(self.checkpoints) if not name.endswith(".pt")]


def processes_beside(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that one has started, and those started by them."""
    markers: list[str] = []
    while not markers:  # none before the process has begun its program
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
        markers = re.findall(rf"(?<=\0{MARKER}=)\w+", environment)
    (marker,) = markers
    return [found for found in processes_with(marker) if found != process.pid]


@pytest.fixture(scope="module")
def data_bin(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    corpus = folder / "corpus"
    main(["synth", "--documents", "60", "--valid-documents", "6", "--test-documents", "3", "--out", str(corpus)])
    subsets = [word for subset in ("train", "valid", "test") for word in (f"--{subset}", str(corpus / subset))]
    languages = ["--src", "de", "--tgt", "en", "--tokenized-input", "--bpe", "none"]
    main(["prepare", *languages, *subsets, "--out", str(folder / "data-bin")])
    return folder / "data-bin"


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("softmax", "fp32"),
        ("reluformer", "fp32"),
        ("rela_g", "fp32"),
        pytest.param("reluformer", "bf16", marks=needs_bf16),
    ],
)
def test_killed_training_ends_in_the_same_bits(attack, data_bin, model, precision):
    undisturbed = Training(attack, model, precision, data_bin, "undisturbed")
    assert undisturbed.run() == 0
    killed = Training(attack, model, precision, data_bin, "killed")
    kills = plan_kills(f"{model} in {precision}")
    for kill in kills:
        assert killed.run(kill) == -signal.SIGKILL
    assert killed.run() == 0
    assert "Traceback" not in Path("output").read_text(errors="replace")
    if any(kill.moment == "saving" for kill in kills):
        assert killed.unfinished > 0, "no kill hit the saving of a checkpoint"
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        hashes = [hash_training_state(training.checkpoints / name) for training in (undisturbed, killed)]
        print(f"{model} in {precision}, {name}: undisturbed {hashes[0]}, killed {KILLS} times {hashes[1]}")
        assert hashes[0] == hashes[1], name
    print(f"{model}: {killed.unfinished} of {KILLS} kills left a half-saved checkpoint")
    assert not killed.half_saved()
