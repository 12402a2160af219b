from relumt.tables import get_table
from tests.tables.cases import make_record, render, write_run


def test_one_row_per_setting_with_validation_loss_and_bleu(tmp_path):
    experiments = get_table("reluformer_sweep").experiments("small")
    assert len({experiment.variant for experiment in experiments}) == len(experiments)
    (default,) = (experiment for experiment in experiments if experiment.variant == "gamma-1-norm-0.1-entropy-0.1")
    for seed, bleu in ((1, 30.0), (2, 31.0)):
        write_run(default, tmp_path, make_record(default, seed, bleu))
    (table,) = render("reluformer_sweep", tmp_path)
    assert ["1", "0.1", "0.1", "4.500 ± 0.000", "30.50 ± 0.71"] in table.rows
    assert ["0.5", "0.1", "0.1", "", ""] in table.rows
