"""What fairseq gets when it loads a checkpoint through relumt's replacement."""

import pytest

from relumt.plugin.checkpoints.fairseq_hooks import load_vetted
from relumt.plugin.model.mechanism_transformer import MechanismTransformer
from tests.plugin.model.build import write_checkpoint, write_data_bin


@pytest.mark.parametrize("flag", ["eval_bleu", "eval_bleu_print_samples"])
def test_the_command_line_decides_about_bleu_in_validation(tmp_path, flag):
    path = str(write_checkpoint(tmp_path, "--eval-bleu", "--eval-bleu-args", '{"beam": 7}'))
    task = load_vetted(path)["cfg"]["task"]
    assert not task[flag] and task["eval_bleu_args"] == "{}", "a checkpoint's own settings are dropped"
    assert load_vetted(path, {flag: True})["cfg"]["task"][flag]


def test_from_pretrained_translates(tmp_path):
    """With fairseq's defaults for all that a vetted checkpoint does not keep."""
    write_data_bin(tmp_path / "bin", [(4, 3)])
    write_checkpoint(tmp_path, "--attention", "relu")
    hub = MechanismTransformer.from_pretrained(str(tmp_path), "checkpoint_best.pt", str(tmp_path / "bin"))
    assert set(hub.translate("w1 w2 w3", beam=2, max_len_b=4).split()) <= {f"w{n}" for n in range(20)} | {"<unk>"}
