from relumt.tables import get_table
from tests.tables.cases import leave, make, record_of


def test_a_row_a_setting_with_validation_loss_and_bleu(tmp_path):
    cells = get_table("reluformer_sweep").experiments("small")
    assert len({cell.variant for cell in cells}) == len(cells)
    (default,) = (cell for cell in cells if cell.variant == "gamma-1-norm-0.1-entropy-0.1")
    for seed, bleu in ((1, 30.0), (2, 31.0)):
        leave(default, tmp_path, record_of(default, seed, bleu))
    (sheet,) = make("reluformer_sweep", tmp_path)
    assert ["1", "0.1", "0.1", "4.500 ± 0.000", "30.50 ± 0.71"] in sheet.rows
    assert ["0.5", "0.1", "0.1", "", ""] in sheet.rows
