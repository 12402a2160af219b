"""How many compiled products are kept, in a process of its own: the setting lasts as long as it."""

import os
import subprocess
import sys

import pytest
from relumt.plugin.compiled_products import CACHES, COMPILED_PRODUCTS, limit_compiled_products

GROWTH = """
import os, torch
from pathlib import Path
from relumt.plugin.compiled_products import limit_compiled_products
limit_compiled_products()
torch.set_num_threads(1)
torch.set_float32_matmul_precision("medium")  # oneDNN, on a CPU with AVX-512

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 2**20

weight = torch.randn(256, 64)
for rows in range(100, 200):
    torch.randn(rows, 64) @ weight.T
before = resident()
for rows in range(200, 600):
    torch.randn(rows, 64) @ weight.T
print(max(0, resident() - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_products_of_ever_new_shapes_do_not_fill_the_memory():
    """On a CPU with AVX-512, where they would take 0.4 MiB each."""
    environment = {name: value for name, value in os.environ.items() if name not in CACHES}
    output = subprocess.run([sys.executable, "-c", GROWTH], env=environment, capture_output=True, check=True).stdout
    assert int(output) < 80  # MiB


def test_the_number_of_compiled_products_can_be_chosen(monkeypatch):
    monkeypatch.setattr(os, "environ", {CACHES[0]: "7"})
    limit_compiled_products()
    assert os.environ == {CACHES[0]: "7", CACHES[1]: str(COMPILED_PRODUCTS)}
