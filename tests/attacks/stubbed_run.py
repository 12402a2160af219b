"""`relumt run` whose steps answer at once, and wait in place of everything that takes long.

The variables IS_TRAINED and IS_EVALUATED say which steps have nothing to do.
"""

import os
from pathlib import Path
from types import SimpleNamespace

from relumt import cli
from relumt.commands import run
from relumt.runs import step_processes
from relumt.runs.run_config import FairseqCommand

STARTED = "started"
"""File that the waiting command creates in the working folder."""

WAIT = f"trap '' PIPE; trap 'echo ended >> ended' TERM; sleep 300 & touch {STARTED}; wait; exit 1"

FOLDER = Path("runs/small/softmax/1")
COMMAND = FairseqCommand(Path("runs/log"), ["data"])


def wait(*_: object) -> None:
    """Wait in a program of its own, as fairseq-train does in the scripts' tests."""
    os.execvp("bash", ["bash", "-c", WAIT])


def main() -> None:
    """Run the command line with other steps."""
    config = SimpleNamespace(folder=FOLDER)

    steps = {
        "resolve_run": lambda _: (config, []),
        "has_work": lambda *_: False,
        "find_device": lambda _: None,
        "check_training": lambda *_: [config],
        "start_training": lambda *_: None if os.environ.get("IS_TRAINED") else COMMAND,
        "check_evaluation": lambda *_: True,
        "start_search": lambda *_: None,
        "start_evaluation": lambda *_: None if os.environ.get("IS_EVALUATED") else COMMAND,
        "needs_analysis": lambda _: True,
        "measure_run": wait,
    }
    for name, step in steps.items():
        assert hasattr(run, name)
        setattr(run, name, step)
    step_processes.preload_fairseq = lambda: None
    step_processes._call_fairseq = wait
    cli.main()


if __name__ == "__main__":
    main()
