"""`relumt.attention` in an environment in which fairseq is not installed."""

import subprocess
import sys
import sysconfig
from pathlib import Path

USE_IT = """
import importlib.util, sys, torch
assert importlib.util.find_spec("fairseq") is None
from relumt.attention import MECHANISMS, AttentionMask
q = torch.randn(2, 4, 5, 8)
for name in MECHANISMS:
    assert MECHANISMS[name](num_heads=4, head_dim=8)(q, q, q, AttentionMask(is_causal=True)).output.shape == q.shape
assert not [name for name in sys.modules if name.startswith(("fairseq", "hydra", "omegaconf"))]
print("works")
"""

OF_FAIRSEQ = ("fairseq", "__editable__.fairseq", "hydra", "omegaconf")


def test_import_and_use(tmp_path):
    site_packages = tmp_path / "site-packages"
    site_packages.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith(OF_FAIRSEQ) and installed.suffix != ".pth":
            (site_packages / installed.name).symlink_to(installed)
    checkout = Path(__file__).parents[2]
    # -S keeps the installed site-packages out; what is linked above is all there is.
    path = f"import sys; sys.path[:0] = [{str(checkout)!r}, {str(site_packages)!r}]\n"
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", path + USE_IT], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.strip() == "works", done.stderr
