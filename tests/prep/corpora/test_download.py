"""Downloads: whole, broken off and taken up again, from mirrors, checked, and the one line where there is none."""

import hashlib
from typing import ClassVar

import pytest

from relumt.errors import UserError
from relumt.prep.corpora.download import PIECE, InterruptedDownloadError, Resuming, Source, fetch
from relumt.prep.progress import Steps
from tests.prep.corpora.server import Server, serving

CONTENT = bytes(range(256)) * 20_000
SIZE = len(CONTENT)
SUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
NOWHERE = "http://127.0.0.1:9/file"


@pytest.fixture
def server():
    with serving(Server({"/file": CONTENT, "/other": CONTENT[::-1]})) as running:
        yield running


def source(server, *paths, checksum=SUM, size=SIZE):
    return Source("file", tuple(f"{server.address}{path}" for path in paths or ("/file",)), checksum, size)


def test_a_file_is_downloaded_once(server, tmp_path):
    for _ in range(2):
        assert fetch(source(server), tmp_path, Steps()).read_bytes() == CONTENT
    assert server.asked == [("/file", None)]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_connection_that_breaks_off_is_taken_up_where_it_was(server, tmp_path, size):
    server.breaks_after = [10 * PIECE, 20 * PIECE]
    assert fetch(source(server, size=size), tmp_path, Steps()).read_bytes() == CONTENT
    assert server.asked == [("/file", None), ("/file", f"bytes={10 * PIECE}-"), ("/file", f"bytes={30 * PIECE}-")]


def test_a_reply_of_unknown_length_that_breaks_is_noticed(tmp_path, monkeypatch):
    import requests

    class Reply:
        headers: ClassVar = {}

        def iter_content(self, _):
            yield CONTENT[:1000]
            raise requests.exceptions.ChunkedEncodingError("broken")

    downloader = Resuming(tmp_path / "file.part", None, lambda _: None)
    with pytest.raises(InterruptedDownloadError, match="1000 of so many bytes"):
        downloader.write(Reply(), 0)


def test_what_came_is_kept_for_the_next_time(server, tmp_path):
    server.breaks_after = [PIECE] * 3
    with pytest.raises(UserError, match=rf"{3 * PIECE} of 5120000 bytes from http.*; get http.* and put it there"):
        fetch(source(server), tmp_path, Steps())
    assert (tmp_path / "file.part").stat().st_size == 3 * PIECE and not (tmp_path / "file").exists()
    assert fetch(source(server), tmp_path, Steps()).read_bytes() == CONTENT
    assert server.asked[-1] == ("/file", f"bytes={3 * PIECE}-")


def test_a_truncated_file_is_noticed_and_completed(server, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT[:4096])
    assert fetch(source(server), tmp_path, Steps()).read_bytes() == CONTENT
    assert server.asked == [("/file", "bytes=4096-")]


def test_a_server_without_ranges_sends_all_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.part").write_bytes(b"x" * 4096)
    assert fetch(source(server), tmp_path, Steps()).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_part_that_is_whole_already_is_used(server, tmp_path, size):
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert fetch(source(server, size=size), tmp_path, Steps()).read_bytes() == CONTENT


def test_mirrors_are_asked_in_their_order(server, tmp_path):
    assert fetch(source(server, "/missing", "/other", "/file"), tmp_path, Steps()).read_bytes() == CONTENT
    assert [path for path, _ in server.asked] == ["/missing", "/other", "/file"]


def test_another_file_is_refused_wherever_it_comes_from(server, tmp_path):
    with pytest.raises(UserError, match="another file than the one known"):
        fetch(source(server, "/other"), tmp_path, Steps())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(CONTENT[::-1])
    with pytest.raises(UserError, match=r"file: another file than the one published \(sha256 differs\); delete it"):
        fetch(source(server), tmp_path, Steps())


def test_without_a_network_one_line_says_what_to_put_where(tmp_path):
    with pytest.raises(UserError) as refused:
        fetch(Source("file", (NOWHERE,)), tmp_path, Steps())
    assert str(refused.value) == (
        f"{tmp_path}/file: not downloaded (no connection at {NOWHERE}); get {NOWHERE} and put it there"
    )


def test_what_is_not_published_has_to_be_asked_for(tmp_path):
    with pytest.raises(UserError, match="file: no such file, and it is not published; ask them, and put it there"):
        fetch(Source("file", ask="ask them"), tmp_path, Steps())
