"""Downloads: complete, resumed, from mirrors, verified, and the error message if there is none."""

import hashlib
from typing import ClassVar

import pytest

from relumt.errors import UserError
from relumt.prep.corpora.download import CHUNK_SIZE, InterruptedDownloadError, fetch, save_body
from relumt.prep.corpora.sources import Source
from tests.prep.corpora.server import Server, serving

CONTENT = bytes(range(256)) * 20_000
SIZE = len(CONTENT)
SUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
NOWHERE = "http://127.0.0.1:9/file"


@pytest.fixture
def server(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    with serving(Server({"/file": CONTENT, "/other": CONTENT[::-1]})) as running:
        yield running


def source(server, *paths, checksum=SUM, size=SIZE):
    return Source("file", tuple(f"{server.address}{path}" for path in paths or ("/file",)), checksum, size)


def test_a_file_is_downloaded_once(server, tmp_path):
    for _ in range(2):
        assert fetch(source(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [("/file", None)]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_lost_connection_is_resumed_where_it_was(server, tmp_path, size):
    server.breaks_after = [10 * CHUNK_SIZE, 20 * CHUNK_SIZE]
    assert fetch(source(server, size=size), tmp_path).read_bytes() == CONTENT
    assert server.requests == [
        ("/file", None),
        ("/file", f"bytes={10 * CHUNK_SIZE}-"),
        ("/file", f"bytes={30 * CHUNK_SIZE}-"),
    ]


def test_a_lost_connection_is_noticed_without_a_content_length(tmp_path):
    import requests

    class Response:
        headers: ClassVar = {}

        def iter_content(self, _):
            yield CONTENT[:1000]
            raise requests.exceptions.ChunkedEncodingError("broken")

    with pytest.raises(InterruptedDownloadError, match="1000 of unknown bytes"):
        save_body(Response(), tmp_path / "file.part", offset=0, size=None, advance=lambda _: None)


def test_a_partial_download_is_kept_for_the_next_time(server, tmp_path):
    server.breaks_after = [CHUNK_SIZE] * 3
    with pytest.raises(
        UserError, match=rf"{3 * CHUNK_SIZE} of 5120000 bytes from http.*; get http.* and save it there"
    ):
        fetch(source(server), tmp_path)
    assert (tmp_path / "file.part").stat().st_size == 3 * CHUNK_SIZE and not (tmp_path / "file").exists()
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == ("/file", f"bytes={3 * CHUNK_SIZE}-")


@pytest.mark.parametrize("content", [CONTENT[:4096], b"packed again by the user, or still being copied"])
def test_a_shorter_file_is_left_alone(server, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    message = rf"has {len(content)} of {SIZE} bytes; rename it to file.part to download the rest, or delete it"
    with pytest.raises(UserError, match=message):
        fetch(source(server), tmp_path)
    assert (tmp_path / "file").read_bytes() == content and not server.requests


def test_a_truncated_file_is_completed_after_renaming(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:4096])
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [("/file", "bytes=4096-")]


def test_a_server_without_ranges_sends_everything_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.part").write_bytes(b"x" * 4096)
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_complete_partial_file_is_used(server, tmp_path, size):
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert fetch(source(server, size=size), tmp_path).read_bytes() == CONTENT


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
    with pytest.raises(UserError) as refused:
        fetch(Source("file", (NOWHERE,)), tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}/file: download failed (ConnectionError at {NOWHERE}); get {NOWHERE} and save it there"
    )


def test_a_file_on_request_is_not_downloaded(tmp_path):
    with pytest.raises(UserError, match="file: no such file, and it cannot be downloaded; ask them, and save it there"):
        fetch(Source("file", request="ask them"), tmp_path)
