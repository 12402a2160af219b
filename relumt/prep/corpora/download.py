"""Getting the files that a corpus's makers publish: checked, from mirrors, and taken up again where they broke off."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.errors import UserError
from relumt.files import file_digest
from relumt.prep.progress import Steps
from relumt.text_files import Advance

if TYPE_CHECKING:
    from pooch import Pooch

ATTEMPTS = 3
"""How often an address is asked for what is still missing before the next one is."""

SILENCE = 30
"""Seconds without a byte after which a connection counts as broken."""

PIECE = 1 << 16
"""Bytes read at once, and the most that is lost of what came before a connection broke."""


@dataclass(frozen=True)
class Source:
    """A published file.

    Attributes:
        name: its name in the folder of raw files.
        urls: where it is: the official place first, then mirrors; none where it has to be asked for.
        checksum: "sha256:…" or "md5:…", None where none is known.
        size: bytes, None where not known.
        ask: where to ask for a file without urls.
    """

    name: str
    urls: tuple[str, ...] = ()
    checksum: str | None = None
    size: int | None = None
    ask: str = ""


class InterruptedDownloadError(OSError):
    """A connection ended before the file did."""


def fetch(source: Source, folder: Path, steps: Steps) -> Path:
    """The file in `folder`, downloaded if it is not there; a truncated one is completed.

    Raises:
        UserError: it is another file than the one known by that name, or no address gave it; the message says what to
            put where by hand.
    """
    path = folder / source.name
    part = path.with_name(f"{path.name}.part")
    if path.is_file() and not is_truncated(path, source):
        return checked(path, source)
    if path.is_file():
        steps.say(f"{path}: {path.stat().st_size} of {source.size} bytes; the rest is fetched")
        path.replace(part)
    if not source.urls:
        raise UserError(f"{path}: no such file, and it is not published; {source.ask}, and put it there")
    reasons = []
    for url in source.urls:
        for _ in range(ATTEMPTS):
            try:
                return download(url, source, part, steps)
            except InterruptedDownloadError as error:
                reason = f"{error} from {url}"
            except (OSError, ValueError) as error:
                reason = f"{plainly(error)} at {url}"
                break
        reasons.append(reason)
    raise UserError(f"{path}: not downloaded ({'; '.join(reasons)}); get {source.urls[0]} and put it there")


def is_truncated(path: Path, source: Source) -> bool:
    """Whether a file is shorter than the one known by its name."""
    return source.size is not None and path.stat().st_size < source.size


def checked(path: Path, source: Source) -> Path:
    """The file; raises UserError if its checksum is another."""
    if source.checksum is not None:
        kind, _, wanted = source.checksum.partition(":")
        if file_digest(path, kind) != wanted:
            raise UserError(f"{path}: another file than the one published ({kind} differs); delete it to have it again")
    return path


def download(url: str, source: Source, part: Path, steps: Steps) -> Path:
    """Get `source` from one address, into the folder of `part`.

    Raises:
        InterruptedDownloadError: the connection broke off; what came is in `part`.
        OSError, ValueError: there is no such file, or it has another checksum.
    """
    import pooch

    pooch.get_logger().setLevel("ERROR")
    with steps.transfer(f"download {source.name}", source.size) as advance:
        got = pooch.retrieve(
            url, source.checksum, fname=source.name, path=part.parent, downloader=Resuming(part, source.size, advance)
        )
    return Path(got)


class Resuming:
    """Downloads for pooch: goes on after what `part` already holds, and keeps what came if it breaks off again."""

    def __init__(self, part: Path, size: int | None, advance: Advance) -> None:
        self.part = part
        self.size = size
        self.advance = advance

    def __call__(self, url: str, output: str, _: "Pooch") -> None:
        """Write what is at `url` to the file `output`."""
        import requests

        have = self.part.stat().st_size if self.part.is_file() else 0
        if have == 0 or have != self.size:
            ask_for_rest = {"Range": f"bytes={have}-"} if have else {}
            # identity: the length of what is sent must be that of the file
            headers = ask_for_rest | {"Accept-Encoding": "identity"}
            with requests.get(url, headers=headers, stream=True, timeout=SILENCE) as response:
                if response.status_code == requests.codes.requested_range_not_satisfiable:
                    self.part.unlink()
                    raise InterruptedDownloadError("too many bytes")
                response.raise_for_status()
                self.write(response, have if response.status_code == requests.codes.partial_content else 0)
        self.part.replace(output)

    def write(self, response, have: int) -> None:
        """Put what comes after the first `have` bytes of `part`; raises InterruptedDownloadError at an early end."""
        import requests

        announced = response.headers.get("Content-Length")
        whole = have + int(announced) if announced else self.size
        self.advance(have)
        broken = False
        with self.part.open("ab" if have else "wb") as file:
            try:
                for piece in response.iter_content(PIECE):
                    file.write(piece)
                    self.advance(len(piece))
            except requests.RequestException:
                broken = True
            reached = file.tell()
        if broken or (whole is not None and reached < whole):
            raise InterruptedDownloadError(f"{reached} of {whole or 'so many'} bytes")


def plainly(error: Exception) -> str:
    """What went wrong in a few words; requests' own messages hold whole chains of exceptions."""
    import requests

    if isinstance(error, requests.HTTPError):
        return f"status {error.response.status_code}"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    if isinstance(error, requests.Timeout):
        return f"no answer in {SILENCE} s"
    if isinstance(error, ValueError):
        return "another file than the one known (checksum)"
    return type(error).__name__
