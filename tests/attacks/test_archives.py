"""Published files: broken, hostile or half-downloaded archives. Nothing is extracted, so nothing can escape."""

import bz2
import errno
import fcntl
import gzip
import hashlib
import io
import lzma
import random
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
import requests

from relumt.prep.corpora import download
from relumt.prep.corpora.archives import read_member
from relumt.prep.corpora.download import fetch
from relumt.prep.corpora.sources import Source
from relumt.text_files import MAX_LINE_BYTES
from tests.prep.corpora.server import Server, serving

pytestmark = pytest.mark.attack("archives")

TEXT = b"ein Satz\nnoch einer\n" * 300


def tar_bytes(entries, compression=""):
    """Return a tar file of entries (name, content), or tarfile.TarInfo for links and devices."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                archive.addfile(info, io.BytesIO(entry[1]))
    return buffer.getvalue()


def zip_bytes(entries, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def read(attack, archive, content, member="d/x.de"):
    """Write an archive, read its member, and return the error message and the text."""
    lines = []
    Path(archive).write_bytes(content)
    message = attack.reads(lambda: lines.extend(read_member(Path(), archive, member)))
    return message, "".join(lines)


def special(kind, name="d/x.de", target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


SPECIAL = {
    "a link out of the archive": special(tarfile.SYMTYPE, target="/etc/passwd"),
    "a relative link out": special(tarfile.SYMTYPE, target="../../../../etc/passwd"),
    "a link to itself": special(tarfile.SYMTYPE, target="x.de"),
    "a hard link out": special(tarfile.LNKTYPE, target="/etc/passwd"),
    "a hard link to a member": special(tarfile.LNKTYPE, target="other"),
    "a character device": special(tarfile.CHRTYPE),
    "a block device": special(tarfile.BLKTYPE),
    "a pipe": special(tarfile.FIFOTYPE),
    "a folder": special(tarfile.DIRTYPE),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_file_is_refused(attack, name):
    message, _ = read(attack, "a.tar", tar_bytes([("other", TEXT), SPECIAL[name]]))
    assert "as something else than a file" in message


@pytest.mark.parametrize("name", ["../x.de", "/etc/x.de", "d/../../x.de", "x\nde", "-x", "$(touch x)", "x\x1b[2J", "ü"])
@pytest.mark.parametrize("archive", ["a.tar", "a.zip"])
def test_paths_in_an_archive_are_only_names(attack, archive, name):
    write = zip_bytes if archive == "a.zip" else tar_bytes
    before = sorted(Path().rglob("*"))
    message, text = read(attack, archive, write([(name, b"payload\n"), ("d/x.de", TEXT)]))
    assert message == "" and text.encode() == TEXT
    assert sorted(Path().rglob("*")) == [*before, Path(archive)]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("archive", ["a.tar", "a.zip"])
def test_two_members_of_one_name_are_refused(attack, archive):
    write = zip_bytes if archive == "a.zip" else tar_bytes
    assert "more than once" in read(attack, archive, write([("d/x.de", TEXT), ("d/x.de", b"other\n")]))[0]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\0", b"\0" * 100_000, b"<!DOCTYPE html><title>404", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18),
        *(gzip.compress(text, mtime=0) for text in (b"", b"<html>")),
        *(bz2.compress(b"x"), lzma.compress(b"x"), b"\x1f\x8b\x08"),
        *(tar_bytes([]), zip_bytes([]), tar_bytes([("other", TEXT)]), zip_bytes([("other", TEXT)])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("archive", ["a.tar", "a.tgz", "a.zip"])
def test_what_is_no_archive_is_refused(attack, archive, content):
    message, _ = read(attack, archive, content)
    assert archive in message and "download" in message


ARCHIVES = {
    "a.tgz": tar_bytes([("d/x.de", TEXT)], "gz"),
    "a.tar.xz": tar_bytes([("d/x.de", TEXT)], "xz"),
    "a.tar.bz2": tar_bytes([("d/x.de", TEXT)], "bz2"),
    "a.zip": zip_bytes([("d/x.de", TEXT)]),
    "stored.zip": zip_bytes([("d/x.de", TEXT)], zipfile.ZIP_STORED),
    "lzma.zip": zip_bytes([("d/x.de", TEXT)], zipfile.ZIP_LZMA),
}


@pytest.mark.parametrize("archive", ARCHIVES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_archives_are_refused(attack, archive, share):
    content = ARCHIVES[archive]
    assert read(attack, archive, content[: int(share * len(content))])[0]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_damage_is_found_or_harmless(attack, archive):
    rng = random.Random(archive)
    for _ in range(30):
        content = bytearray(ARCHIVES[archive])
        for _ in range(rng.choice((1, 1, 3, 20))):
            content[rng.randrange(len(content))] = rng.randrange(256)
        message, text = read(attack, archive, content)
        assert message or text.encode() == TEXT


def test_an_encrypted_archive_is_refused(attack):
    content = bytearray(ARCHIVES["stored.zip"])
    for header, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + offset] |= 1
    assert "broken archive" in read(attack, "a.zip", content)[0]


@pytest.mark.parametrize("member", ["d/x.de", "d/x.de.gz"])
def test_a_decompression_bomb_does_not_fill_the_memory(attack, member):
    zeros = b"a" * (2 * MAX_LINE_BYTES)
    content = zip_bytes([(member, gzip.compress(zeros, 1) if member.endswith("gz") else zeros)])
    assert "longer than" in read(attack, "a.zip", content, member)[0]


@pytest.mark.parametrize(
    "content", [TEXT[:-1] + b"\xff\n", TEXT.decode().encode("utf-16"), TEXT.decode().encode("utf-32-le")]
)
def test_members_in_another_encoding_are_refused(attack, content):
    assert "UTF-8" in read(attack, "a.tgz", tar_bytes([("d/x.de", content)], "gz"))[0]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("archive", ["a.tgz", "a.zip"])
def test_a_failing_disk_is_not_a_broken_download(attack, monkeypatch, number, archive):
    Path(archive).write_bytes(ARCHIVES[archive])

    def fail(*_):
        raise OSError(number, "as if")

    monkeypatch.setattr("relumt.prep.corpora.archives.decode_lines", fail)
    with pytest.raises(OSError, match="as if"):
        attack.reads(lambda: list(read_member(Path(), archive, "d/x.de")))
    attack.outcomes.append("failed")


# Downloads

SUM = f"sha256:{hashlib.sha256(TEXT).hexdigest()}"


@pytest.fixture(scope="module")
def server():
    with serving(
        Server({"/file": TEXT, "/html": b"<html>Not here</html>", "/empty": b"", "/more": TEXT + b"more"})
    ) as it:
        yield it


@pytest.mark.parametrize("path", ["/html", "/empty", "/more", "/missing"])
@pytest.mark.parametrize("size", [len(TEXT), None])
def test_another_file_is_not_taken_for_the_published_one(attack, server, path, size):
    message = attack.reads(fetch, Source("file", (server.address + path,), SUM, size), Path())
    assert "file: download failed" in message and not Path("file").exists()


class Response:
    """What a hostile server answers."""

    def __init__(self, headers=(), status=200, body=(TEXT,)):
        self.headers, self.status_code, self.body = dict(headers), status, body

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def raise_for_status(self):
        pass

    def iter_content(self, _):
        yield from self.body


def endless():
    while True:
        yield b"x" * 1_000_000


HOSTILE = {
    "a negative length": Response({"Content-Length": "-5"}, body=[b""]),
    "too short a body": Response({"Content-Length": str(len(TEXT))}, body=[TEXT[:10]]),
    "an endless body": Response(body=endless()),
    "an endless body with a length": Response({"Content-Length": str(len(TEXT))}, body=endless()),
    "the rest, unasked": Response({"Content-Range": f"bytes 5-9/{len(TEXT)}"}, 206, [TEXT[5:]]),
    "nothing": Response(body=[]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_servers_are_refused(attack, monkeypatch, name):
    monkeypatch.setattr(requests, "get", lambda *_, **__: HOSTILE[name])
    message = attack.reads(fetch, Source("file", ("http://x/file",), SUM, len(TEXT)), Path())
    assert "file: download failed" in message and not Path("file").exists()


@pytest.mark.parametrize("length", ["many", "-5", "", "9" * 5000, "6e3", "٣"])
def test_impossible_lengths_are_ignored(attack, monkeypatch, length):
    monkeypatch.setattr(requests, "get", lambda *_, **__: Response({"Content-Length": length}))
    assert attack.reads(fetch, Source("file", ("http://x/file",), SUM, len(TEXT)), Path()) == ""
    assert Path("file").read_bytes() == TEXT


def test_two_downloads_of_one_file_are_refused(attack, server):
    with Path("file.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        message = attack.reads(fetch, Source("file", (server.address + "/file",), SUM), Path())
    assert "another process is downloading this file" in message


ERRORS = [
    requests.TooManyRedirects("30"),
    requests.ConnectionError("refused"),
    requests.Timeout("30 s"),
    requests.exceptions.InvalidSchema("file:///etc/passwd"),
    requests.exceptions.SSLError("certificate"),
    requests.exceptions.ContentDecodingError("gzip"),
    requests.HTTPError("500"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_connections_that_fail_are_reported(attack, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(requests, "get", fail)
    assert "get http://x/file and save it there" in attack.reads(fetch, Source("file", ("http://x/file",)), Path())


def test_a_full_disk_is_not_a_broken_download(attack, monkeypatch, server):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "save_body", fail)
    with pytest.raises(OSError, match="No space left"):
        attack.reads(fetch, Source("file", (server.address + "/file",), SUM), Path())
    attack.outcomes.append("failed")


def test_a_part_of_another_file_is_not_completed(attack, server):
    Path("file.part").write_bytes(zlib.compress(TEXT))
    source = Source("file", (server.address + "/file",), SUM, len(TEXT))
    attack.reads(fetch, source, Path())
    assert not Path("file").exists() or Path("file").read_bytes() == TEXT
    assert attack.reads(fetch, source, Path()) == "" and Path("file").read_bytes() == TEXT
