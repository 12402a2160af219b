import pytest

from relumt.atomic_output import atomic_folder


def test_result_replaces_the_old_folder_and_nothing_else_stays(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()
    with atomic_folder(out) as stage:
        (stage.result / "new").touch()
        (stage.scratch / "waste").touch()
        assert (out / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["new"]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError])
def test_interruption_leaves_everything_as_before(tmp_path, reason):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    for out in (tmp_path / "out", tmp_path / "deep" / "er" / "out"):
        with pytest.raises(reason), atomic_folder(out) as stage:
            (stage.result / "new").touch()
            raise reason
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["old", "out"]
