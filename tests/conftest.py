"""Settings of the whole suite."""

import hypothesis
import torch

# The first example of a test pays for imports, and CI has two busy cores: no deadline. Same examples every time.
hypothesis.settings.register_profile("relumt", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("relumt")
torch.set_num_threads(1)
