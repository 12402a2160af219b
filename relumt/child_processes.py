"""Child processes that end with their parent, however it ends.

Run as a program, this module runs another one whose workers end with it, too: child_processes.py MODULE ARGUMENTS…
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent() -> None:
    """Let the kernel end this process when the thread that started it ends, on Linux; elsewhere do nothing."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    os.register_at_fork(after_in_child=end_with_parent)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
