import pytest

from relumt.errors import UserError
from relumt.prep.subsets import read_subsets, subsets_path, write_subsets


def test_subsets_are_read_as_written(tmp_path):
    path = subsets_path(str(tmp_path / "test"))
    assert read_subsets(path, 3) == {}
    write_subsets(path, {"without the last line": [2]})
    assert read_subsets(path, 3) == {"without the last line": [2]}


@pytest.mark.parametrize("content", ['{"a": [3]}', '{"a": 1}', "[1]", "{", '{"a": [0, 1, 2]}', '{"a": [0], "a": [1]}'])
def test_subsets_that_do_not_fit_the_text_are_refused(tmp_path, content):
    path = tmp_path / "test.subsets.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"test\.subsets\.json: .* for a text of 3 lines"):
        read_subsets(path, 3)
