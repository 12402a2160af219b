"""Where the documents of ContraPro are found."""

import pytest

from relumt.errors import UserError
from relumt.prep.contrastive.contrapro import Documents


@pytest.fixture
def documents(tmp_path):
    for year, name in ((1999, "1_2"), (2001, "1_2"), (2001, "3")):
        (tmp_path / str(year)).mkdir(exist_ok=True)
        (tmp_path / str(year) / f"{name}.de").touch()
    return Documents(tmp_path, ("en", "de"))


@pytest.mark.parametrize(
    ("document_id", "found"),
    [("1999/1_2", "1999/1_2.de"), ("s1/2001/1_2.de", "2001/1_2.de"), ("3", "2001/3.de"), ("1999/3.de", "2001/3.de")],
)
def test_a_document_is_found_by_its_name_and_if_need_be_its_year(documents, document_id, found):
    assert documents.find(document_id) == documents.folder / found


@pytest.mark.parametrize(
    ("document_id", "message"), [("1_2", "'1_2' is the name of several documents"), ("4", "has no document '4'")]
)
def test_other_documents_are_refused(documents, document_id, message):
    with pytest.raises(UserError, match=message):
        documents.find(document_id)
