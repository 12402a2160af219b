"""What happens to freed memory and to compiled products, in a process of its own: both settings last as long as it."""

import os
import subprocess
import sys

import pytest

from relumt.cpu_memory import COMPILED_PRODUCTS, PRODUCT_CACHES, limit_compiled_products

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="relumt changes the memory of Linux only")

PAGES = 64 * 2**20 // os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 0
"""Pages of the tensor in FAULTS."""

FAULTS = """
import resource, torch
from relumt.cpu_memory import keep_freed_memory
keep_freed_memory()
torch.ones(2**24)  # 64 MiB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

GROWTH = """
import os, torch
from pathlib import Path
from relumt.cpu_memory import limit_compiled_products
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


def printed_number(code: str, **environment: str) -> int:
    """Return what the code prints in a new process with these environment variables."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", *PRODUCT_CACHES))
    }
    output = subprocess.run([sys.executable, "-c", code], env=own | environment, capture_output=True, check=True)
    return int(output.stdout)


@pytest.mark.skipif("glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="only glibc has these settings")
def test_a_tensor_takes_the_pages_of_the_one_before():
    assert printed_number(FAULTS) < PAGES / 10


def test_memory_settings_of_the_user_are_left_alone():
    assert printed_number(FAULTS, MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") >= PAGES


def test_products_of_ever_new_shapes_do_not_fill_the_memory():
    """On a CPU with AVX-512, where they would take 0.4 MiB each."""
    assert printed_number(GROWTH) < 80


def test_the_number_of_compiled_products_can_be_chosen(monkeypatch):
    monkeypatch.setenv(PRODUCT_CACHES[0], "7")
    monkeypatch.delenv(PRODUCT_CACHES[1], raising=False)
    limit_compiled_products()
    assert [os.environ[name] for name in PRODUCT_CACHES] == ["7", str(COMPILED_PRODUCTS)]
