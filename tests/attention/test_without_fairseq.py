"""`relumt.attention` works where fairseq is not installed, and is imported quickly."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli", "hydra", "omegaconf"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NotInstalled())
import torch
from relumt.attention import MECHANISMS, AttentionMask
slow = sorted({"numba", "sympy", "torch._dynamo", "triton"} & sys.modules.keys())
assert not slow, f"imported before they are needed: {slow}"
q = torch.randn(2, 4, 5, 8)
for name, spec in MECHANISMS.items():
    options = {"implementation": "cdist"} if "inhibitor" in name else {}  # Numba takes seconds
    assert spec(num_heads=4, head_dim=8, **options)(q, q, q, AttentionMask(is_causal=True)).output.shape == q.shape
print("works")
"""


def test_every_mechanism_works_without_fairseq():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=root, check=False)
    assert done.stdout.strip() == "works", done.stderr
