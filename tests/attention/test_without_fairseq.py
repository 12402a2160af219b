"""`relumt.attention` works where no extra is installed, so without fairseq, and is imported quickly."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

extras = "fairseq fairseq_cli hydra omegaconf msgspec sacrebleu sacremoses rich tabulate requests scipy matplotlib"
sys.modules |= dict.fromkeys(extras.split())  # None: not installed
import torch
from relumt.attention import MECHANISMS, AttentionMask
slow = sorted({"numba", "sympy", "torch._dynamo", "triton"} & sys.modules.keys())
assert not slow, f"imported before they are needed: {slow}"
sys.modules["numba"] = None
q = torch.randn(2, 4, 5, 8)
for name, spec in MECHANISMS.items():
    assert spec(num_heads=4, head_dim=8)(q, q, q, AttentionMask(is_causal=True)).output.shape == q.shape
print("works")
"""


def test_every_mechanism_works_without_an_extra():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=root, check=False)
    assert done.stdout.strip() == "works" and done.stderr.count("pip install numba") == 1, done.stderr
