"""Remembers on disk which blocks were fastest on a GPU, see `tuning`."""

import functools
import logging
from pathlib import Path

import msgspec
import torch

from relumt.atomic_output import atomic_file
from relumt.attention.kernels.launch_config import CallKind, KernelName, LaunchConfig
from relumt.attention.kernels.verdict_cache import cache_folder
from relumt.errors import UserError
from relumt.json_files import read_json

logger = logging.getLogger(__name__)

Blocks = dict[KernelName, dict[CallKind, LaunchConfig]]
MAX_TILE, MAX_WARPS, MAX_STAGES = 256, 16, 8


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    """The file's format; blocks by GPU and version of Triton, see `_environment`."""

    blocks: dict[str, Blocks]

    def __post_init__(self) -> None:
        """Raise ValueError, which makes the file invalid, for blocks that no kernel can be launched with."""
        for config in (c for blocks in self.blocks.values() for kinds in blocks.values() for c in kinds.values()):
            if not _is_launchable(config):
                raise ValueError(f"impossible blocks {list(config)}")


def path() -> Path:
    """Return the file's path."""
    return cache_folder() / "blocks.json"


@functools.cache
def read(device: torch.device) -> Blocks:
    """Return the tuned blocks of a device; none for a CPU, or if the file is missing, damaged or not ours."""
    return {} if device.type != "cuda" else _read().blocks.get(_environment(device), {})


def write(device: torch.device, blocks: Blocks) -> None:
    """Replace the blocks of these kernels and kinds, and keep all others.

    Raises:
        OSError, UserError: the file cannot be written.
    """
    content = _read()
    remembered = content.blocks.setdefault(_environment(device), {})
    for kernel, kinds in blocks.items():
        remembered[kernel] = remembered.get(kernel, {}) | kinds
    with atomic_file(path()) as unfinished:
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    read.cache_clear()


def _read() -> _Content:
    try:
        return read_json(path(), _Content, "it is ignored; delete it, or run relumt doctor --tune")
    except FileNotFoundError:
        pass
    except UserError as error:
        _warn_once(str(error))
    return _Content({})


def _is_launchable(config: LaunchConfig) -> bool:
    tiles_fit = all(16 <= size <= MAX_TILE and size.bit_count() == 1 for size in (config.BLOCK_T, config.BLOCK_S))
    warps_fit = 1 <= config.num_warps <= MAX_WARPS and config.num_warps.bit_count() == 1
    return tiles_fit and warps_fit and 1 <= config.num_stages <= MAX_STAGES


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def _environment(device: torch.device) -> str:
    """Return what decides which blocks are fastest."""
    import triton  # here, because Triton is optional

    return f"{torch.cuda.get_device_name(device)}, Triton {triton.__version__}"
