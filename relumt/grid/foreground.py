"""Run a command in place of this process: python -m relumt.grid.foreground COMMAND…

The command ends, with everything that it started, when this process is interrupted, terminated or killed.
"""

import os
import signal
import subprocess
import sys
from types import FrameType

from relumt.grid.supervised_process import TERMINATING, shell_status, start_supervised, stop_supervised


def main() -> int:
    """Run the command that follows on the command line; return its exit status.

    A signal that ends this process first ends the command. One that is ignored, as nohup does with SIGHUP, stays so.
    """
    processes: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        for process in processes:
            stop_supervised(process)

    for number in TERMINATING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    processes.append(start_supervised(sys.argv[1:], close_fds=False))
    if received:  # before the process was in the list
        stop_supervised(processes[0])
    status = processes[0].wait()
    if received:  # end by the same signal, so that the shell's loops and scripts around this command end, too
        signal.signal(received[0], signal.SIG_DFL)
        os.kill(os.getpid(), received[0])
    return shell_status(status)


if __name__ == "__main__":
    sys.exit(main())
