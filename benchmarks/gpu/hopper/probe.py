"""Tell which GPU and which versions results are from."""

import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import torch
from jobs import Job


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the versions, and the GPU if there is one."""
    versions = {"torch": torch.__version__, "triton": version("triton")}
    if torch.cuda.is_available():
        versions["card"] = torch.cuda.get_device_name()
        versions["capability"] = list(torch.cuda.get_device_capability())
        versions["driver"] = subprocess.getoutput("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    yield versions
