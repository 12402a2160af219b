"""Settings of the whole test suite."""

import os

import hypothesis
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which torch.compile does too

# No deadline, because the first example of a test includes imports and CI has two busy cores. The examples are always
# the same.
hypothesis.settings.register_profile("relumt", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("relumt")
torch.set_num_threads(1)
