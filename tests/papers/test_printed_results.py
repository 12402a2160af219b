"""Results of the papers: titles, values and their digits."""

import pytest

from relumt.printed_results import format_printed, papers, printed_values, title


def test_titles_have_the_number_of_the_paper(monkeypatch):
    assert title("RL", "table3") == "[RL] Table 3: sacreBLEU on four language pairs"
    assert title("RL", "figure7").startswith("[RL] Figure 7: null attention: ")
    assert title("IN", "table1").startswith("[IN] Table 1: one-layer models")
    monkeypatch.setitem(papers()["RL"], "table10", {"caption": "speed"})
    assert title("RL", "table10") == "[RL] Table 10: speed"


def test_a_value_has_the_digits_of_its_column():
    assert format_printed("RL", "table1", "relu + RMSNorm", "tokenized BLEU") == "26.60"
    assert format_printed("RF", "table2", "relu, no scale factor", "BLEU") == ""
    assert printed_values("RF", "table2", "relu, no scale factor") == {"BLEU": None}
    with pytest.raises(KeyError):
        printed_values("RF", "table2", "gelu")
