"""Settings of the whole test suite."""

import os
import signal

import hypothesis
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which torch.compile does too

# A suite that a script runs in the background ignores Ctrl-C, and so would all that its tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup the same is true of SIGHUP. A handler is not inherited, so the suite alone goes on after a hangup.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# No deadline, because the first example of a test includes imports and CI has two busy cores. The examples are always
# the same.
hypothesis.settings.register_profile("relumt", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("relumt")
torch.set_num_threads(1)


@pytest.fixture
def restored_fp32_backend():
    """Restore PyTorch's setting of products in fp32 after the test."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)
