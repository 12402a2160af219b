"""`relumt run`: how it is called. The scripts' tests run its stages."""

import pytest

from relumt.cli import main


def test_a_run_without_a_stage_is_refused(config, configs, capsys):
    options = ["--runs", config.folder.parents[2], "--configs", configs, "--data-bin", config.data_bin.folder]
    with pytest.raises(SystemExit) as ended:
        main(["run", *map(str, options), "--", "small", "stock"])
    message = "relumt: error: expected at least one stage, found none; give --train, --evaluate or --analyze\n"
    assert ended.value.code == 2 and capsys.readouterr().err == message
    assert not config.folder.exists()
