"""The published files that corpora are made from, as listed in sources.toml."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Source:
    """A published file.

    Attributes:
        name: its name in the folder of raw files.
        urls: where to download it: the official URL first, then mirrors. Empty if it is only available on request.
        checksum: "sha256:…" or "md5:…", None if unknown.
        size: bytes, None if unknown.
        request: how to request a file without URLs.
    """

    name: str
    urls: tuple[str, ...] = ()
    checksum: str | None = None
    size: int | None = None
    request: str = ""


def load_sources() -> dict[str, Source]:
    """Return the files in sources.toml by name."""
    table = tomllib.loads((files(__package__) / "sources.toml").read_text(encoding="utf-8"))
    return {name: Source(name, tuple(fields.pop("urls", ())), **fields) for name, fields in table.items()}


SOURCES = load_sources()
