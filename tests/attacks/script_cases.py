"""A Python for the scripts that waits in place of every command that takes long."""

import sys
from pathlib import Path

from tests.attacks.stubbed_run import STARTED, WAIT

PYTHON = f"""#!/usr/bin/env bash
case " $* " in
    *find_spec* | *relumt.grid.supervised_process*) exec {sys.executable} "$@" ;;
    *" relumt.cli run "*) exec {sys.executable} -P -m tests.attacks.stubbed_run "${{@:4}}" ;;
    *) {WAIT} ;;
esac
"""

__all__ = ["STARTED", "write_python"]


def write_python(folder: Path) -> Path:
    """Write the Python, whose `relumt run` is that of `stubbed_run`."""
    path = folder / "python"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return path
