"""Downloads: complete, resumed, from mirrors, verified, and the error message if there is none."""

import gzip
import hashlib
from functools import partial

import pytest

from relumt.corpora.published_files import CHUNK_SIZE, Source, fetch, read_member
from relumt.errors import UserError
from tests.corpora.published_cases import write_tar, write_zip
from tests.corpora.server import Server, serving

CONTENT = bytes(range(256)) * 20_000
SUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
NOWHERE = "http://127.0.0.1:9/file"


@pytest.fixture
def server(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    with serving(Server({"/file": CONTENT, "/other": CONTENT[::-1]})) as running:
        yield running


def source(server, *paths, checksum=SUM):
    return Source("file", tuple(f"{server.address}{path}" for path in paths or ("/file",)), checksum, len(CONTENT))


def test_a_lost_connection_is_resumed_where_it_was(server, tmp_path):
    server.breaks_after = [10 * CHUNK_SIZE, 20 * CHUNK_SIZE]
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [
        ("/file", "bytes=0-"),
        ("/file", f"bytes={10 * CHUNK_SIZE}-"),
        ("/file", f"bytes={30 * CHUNK_SIZE}-"),
    ]


def test_a_partial_download_is_kept_for_the_next_time(server, tmp_path):
    server.breaks_after = [CHUNK_SIZE] * 3
    with pytest.raises(UserError, match=r"download failed \(.* at http.*\); get http.* and save it there"):
        fetch(source(server), tmp_path)
    assert (tmp_path / "file.part").stat().st_size == 3 * CHUNK_SIZE and not (tmp_path / "file").exists()
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == ("/file", f"bytes={3 * CHUNK_SIZE}-")


@pytest.mark.parametrize(("partial", "ranges"), [(CONTENT, True), (b"x" * 4096, False)])
def test_a_partial_file_is_completed_and_written_again_if_the_server_has_no_ranges(server, tmp_path, partial, ranges):
    server.ranges = ranges
    (tmp_path / "file.part").write_bytes(partial)
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT


def test_mirrors_are_tried_in_order(server, tmp_path):
    assert fetch(source(server, "/missing", "/other", "/file"), tmp_path).read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/missing", "/other", "/file"]


def test_a_file_with_another_checksum_is_refused(server, tmp_path):
    with pytest.raises(UserError, match=r"a different file \(checksum\) at http"):
        fetch(source(server, "/other"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(CONTENT[::-1])
    with pytest.raises(UserError, match=r"file differs from the published file \(checksum\); delete it"):
        fetch(source(server), tmp_path)


def test_without_a_network_the_error_says_what_to_save_where(tmp_path):
    with pytest.raises(UserError, match=rf"file: download failed \(ConnectionError: .*; get {NOWHERE} and save"):
        fetch(Source("file", (NOWHERE,)), tmp_path)


def test_a_file_on_request_is_not_downloaded(tmp_path):
    with pytest.raises(UserError, match="file: no such file, and it cannot be downloaded; ask them, and save it there"):
        fetch(Source("file", request="ask them"), tmp_path)


TEXT = "ein Satz\nnoch einer\n"


@pytest.mark.parametrize(
    ("archive", "write"), [("a.tgz", write_tar), ("a.tar", partial(write_tar, mode="w")), ("a.zip", write_zip)]
)
def test_texts_in_archives(tmp_path, archive, write):
    members = {"d/b.de": TEXT.encode(), "d/a.de": b"1\n", "other": b"no", "x.de.gz": gzip.compress(TEXT.encode())}
    write(tmp_path / archive, members)
    assert list(read_member(tmp_path / archive, "x.de.gz")) == ["ein Satz\n", "noch einer\n"]
    assert list(read_member(tmp_path / archive, "d/*.de")) == ["1\n", "ein Satz\n", "noch einer\n"]  # in order


def test_broken_and_missing_texts_are_reported(tmp_path):
    write_tar(tmp_path / "a.tgz", {"x.de": TEXT.encode() * 1000})
    with pytest.raises(UserError, match=r"a\.tgz: contains no x\.en"):
        list(read_member(tmp_path / "a.tgz", "x.en"))
    (tmp_path / "a.tgz").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"a\.tgz: broken archive \(.*\); delete it"):
        list(read_member(tmp_path / "a.tgz", "x.de"))
    write_tar(tmp_path / "a.tgz", {"x.de": b"gut\n\xff\n"})
    with pytest.raises(UserError, match=r"a\.tgz/x\.de:2: not valid UTF-8"):
        list(read_member(tmp_path / "a.tgz", "x.de"))


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_truncated_archives_are_refused(tmp_path, name, share):
    path = tmp_path / name
    (write_zip if name == "a.zip" else write_tar)(path, {"x.de": bytes(range(256)) * 90})
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match=r"broken archive|damaged|not valid UTF-8"):
        list(read_member(path, "x.de"))
