"""Things at a path that are neither a file nor a folder."""

import os
import socket
from pathlib import Path


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # in the working folder: the whole path may be too long


def make_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_broken_link(path: Path) -> None:
    path.symlink_to("missing/folder")
