"""The circuits under encryption. Concrete needs an environment of its own, which RELUMT_CONCRETE_PYTHON names."""

import os

import pytest

from relumt.encrypted_attention.__main__ import main
from relumt.encrypted_attention.worker_process import INSTALL, PYTHON_VARIABLE
from tests.tables.cases import render


@pytest.mark.skipif(
    not os.environ.get(PYTHON_VARIABLE), reason=f"{PYTHON_VARIABLE} is not set: {INSTALL}; set it to that python"
)
def test_two_tokens_are_decrypted_exactly_with_the_expected_number_of_bootstraps(tmp_path, capsys):
    """Keys and four runs take half a minute of CPU time."""
    main(["--preset", "smoke", "--out", str(tmp_path / "inhibitor_table3-smoke")])
    assert capsys.readouterr().err.count("exact") == 4
    times, circuits = render("inhibitor_table3", tmp_path, "smoke")
    assert [row[:2] for row in circuits.rows] == [["2, dot product", "42"], ["2, inhibitor", "16"]]  # 10n² + n, 4n²
    assert float(times.rows[0][-2]) > 1
