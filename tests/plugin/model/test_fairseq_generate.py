"""fairseq-generate with our models, as a user without our scripts calls it."""

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate

from tests.plugin.model.build import write_checkpoint, write_data_bin


def test_every_sentence_is_translated(tmp_path, capsys):
    """fairseq itself skips a last batch whose size is no multiple of 8."""
    data = write_data_bin(tmp_path / "bin", [(3, 2)] * 9)
    path = write_checkpoint(tmp_path / "run", "--attention", "relu")
    flags = [str(data), "--path", str(path), "--cpu", "--beam", "1", "--max-len-b", "3"]
    settings = options.parse_args_and_arch(options.get_generation_parser(), flags)
    generate.main(convert_namespace_to_omegaconf(settings))
    assert capsys.readouterr().out.count("\nH-") == 9
