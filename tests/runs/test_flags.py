import os
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relumt.errors import UserError
from relumt.runs.flags import command_line, join_flag_values, parse_flag_lines, parse_flags


def test_lines_may_contain_comments_quotations_and_several_flags():
    text = "# head\n--lr 1e-3 --share-all-embeddings  # why\n\n--adam-betas '(0.9, 0.98)'\n--lr 1e-3\n--aim-repo=.\n"
    flags = parse_flag_lines(text, "here")
    assert flags == {
        "--lr": ["1e-3"],
        "--share-all-embeddings": [],
        "--adam-betas": ["(0.9, 0.98)"],
        "--aim-repo": ["."],
    }
    # Trackers are passed on, but are no setting of a run.
    assert join_flag_values(flags) == {"--lr": "1e-3", "--share-all-embeddings": "", "--adam-betas": "(0.9, 0.98)"}


def test_equals_sign_negative_numbers_and_several_values():
    flags = parse_flags(["--lr=0.1", "--keep", "-1", "--x", "-.5e-3", "--y", "1", "2"], "here")
    assert flags == {"--lr": ["0.1"], "--keep": ["-1"], "--x": ["-.5e-3"], "--y": ["1", "2"]}


FLAG = st.text("abc-", min_size=1, max_size=5).map(lambda name: f"--{name}")
VALUE = st.text("a1(=# '\".", min_size=1, max_size=5)


@given(st.dictionaries(FLAG, st.lists(VALUE, max_size=3), max_size=5))
def test_flags_are_recovered_from_their_command_line(flags):
    assert parse_flags(command_line(flags), "here") == flags
    assert parse_flags(shlex.split(shlex.join(command_line(flags)), comments=True), "here") == flags


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--lr 1\n--x 'open\n", "here:2: No closing quotation"),
        ("--lr 1\n--lr 2\n", "here:2: --lr is given twice, as '1' and '2'; give it once"),
        ("0.1\n", "here:1: expected a flag that begins with --, found '0.1'"),
    ],
)
def test_errors_name_the_origin_and_the_line(text, message):
    with pytest.raises(UserError, match=message):
        parse_flag_lines(text, "here")


@pytest.mark.parametrize("text", [b"a\nb", b"a\xff", b"\x1b[2J", "\u202e".encode()])
def test_control_characters_and_bytes_that_are_not_utf8_are_refused(text):
    for tokens in (["--x", os.fsdecode(text)], [f"--x={os.fsdecode(text)}"], [f"--{os.fsdecode(text)}"]):
        with pytest.raises(UserError, match=r"here: '.*control character or bytes that are not UTF-8"):
            parse_flags(tokens, "here")
