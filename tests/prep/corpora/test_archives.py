"""Reading texts from archives of every kind, or extracted ones."""

import gzip
import io
import tarfile
import zipfile

import pytest

from relumt.errors import UserError
from relumt.prep.corpora.archives import find_extracted, read_member

TEXT = "ein Satz\nnoch einer\n"


def write_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("archive", "write", "member"),
    [
        ("a.tgz", write_tar, "training/x.de"),
        ("a.tar", lambda path, members: write_tar(path, members, "w"), "x.de.gz"),
        ("a.zip", write_zip, "x.de"),
    ],
)
def test_texts_in_archives(tmp_path, archive, write, member):
    content = gzip.compress(TEXT.encode()) if member.endswith(".gz") else TEXT.encode()
    write(tmp_path / archive, {member: content, "other": b"no"})
    assert list(read_member(tmp_path, archive, member)) == ["ein Satz\n", "noch einer\n"]


def test_a_pattern_matches_several_texts_in_order(tmp_path):
    write_zip(tmp_path / "a.zip", {"d/b_en.txt": b"2\n", "d/a_en.txt": b"1\n", "d/a_cn.txt": b"no\n"})
    assert list(read_member(tmp_path, "a.zip", "d/*_en.txt")) == ["1\n", "2\n"]


@pytest.mark.parametrize("name", ["training/x.de", "x.de", "x.de.gz"])
def test_extracted_texts_are_found_too(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(TEXT.encode()) if name.endswith("gz") else TEXT.encode())
    assert find_extracted(tmp_path, "training/x.de") == [path] and find_extracted(tmp_path, "training/x.en") == []
    assert find_extracted(tmp_path, "other/x.d[e]*") == []
    assert "".join(read_member(tmp_path, "a.tgz", "training/x.de")) == TEXT


def test_broken_and_missing_texts_are_reported(tmp_path):
    write_tar(tmp_path / "a.tgz", {"x.de": TEXT.encode() * 1000})
    with pytest.raises(UserError, match=r"a\.tgz: contains no x\.en"):
        list(read_member(tmp_path, "a.tgz", "x.en"))
    (tmp_path / "a.tgz").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"a\.tgz: broken archive \(.*\); delete it"):
        list(read_member(tmp_path, "a.tgz", "x.de"))
    write_tar(tmp_path / "a.tgz", {"x.de": b"gut\n\xff\n"})
    with pytest.raises(UserError, match=r"a\.tgz/x\.de:2: not valid UTF-8"):
        list(read_member(tmp_path, "a.tgz", "x.de"))
