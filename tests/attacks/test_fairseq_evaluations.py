"""Every setting that fairseq passes to `eval` is restricted, and every file in which it could run code is reviewed.

The lists describe the installed release of fairseq. With another release this test fails: review what is new, and
extend the tables in `relumt.plugin.checkpoints.loading` or the lists.
"""

import ast
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import fairseq
import pytest

import relumt
from relumt.plugin.checkpoints.loading import check_value

pytestmark = pytest.mark.attack("checkpoints")

ROOT = Path(fairseq.__file__).parent
PARTS = ("models", "tasks", "criterions", "data", "modules")
"""Folders of what is built from a checkpoint. The rest of fairseq is built from the command line."""

EVALUATES = {"eval", "exec", "eval_bool", "eval_str_list", "eval_str_dict"}
COMMAND_LINE = {"x", "uf"}
"""Arguments of the types of flags, which argparse calls."""

RUNS_CODE = {
    *("compile", "globals", "__import__", "importlib.import_module", "importlib.reload", "runpy.run_path"),
    *("pickle.load", "pickle.loads", "dill.load", "marshal.loads", "joblib.load", "shelve.open", "os.system"),
    *("torch.load", "torch.hub.load", "torch.hub.load_state_dict_from_url", "np.load", "numpy.load", "os.popen"),
    *("yaml.load", "yaml.full_load", "yaml.unsafe_load", "hydra.utils.instantiate"),
}
"""Calls that run code from their arguments or from a file; `subprocess.*` is added to them."""

OWN_NAMES = "imports fairseq's own files by their names"
DATA = "reads the data, with safe loaders: torch.load and np.load refuse pickles, yaml.FullLoader refuses objects"

REVIEWED = {
    **dict.fromkeys(("criterions/__init__.py", "models/__init__.py", "models/ema/__init__.py"), OWN_NAMES),
    **dict.fromkeys(("models/huggingface/__init__.py", "tasks/__init__.py", "data/encoders/__init__.py"), OWN_NAMES),
    "data/audio/__init__.py": OWN_NAMES,
    **dict.fromkeys(("data/audio/audio_utils.py", "data/audio/data_cfg.py", "data/codedataset.py"), DATA),
    "data/audio/feature_transforms/global_cmvn.py": DATA,
    "data/fasta_dataset.py": "RESTRICTED does not allow dataset_impl 'fasta'",
    "data/plasma_utils.py": "runs a command with --plasma-path of the command line",
    "models/speech_to_text/hub_interface.py": "called with the arguments of a function",
    "models/speech_to_text/xm_transformer.py": "load_pretrained_decoder_from is dropped",
    "models/text_to_speech/vocoder.py": "weights_only is torch's default",
    "modules/quantization/pq/em.py": "called only with --quantization-config-path of the command line",
    "modules/quantization/scalar/ops.py": "the name is one of fairseq's own functions",
    "tasks/audio_pretraining.py": "post_save_script is dropped",
    "tasks/text_to_speech.py": "speaker_emb_path is dropped",
}
"""File in which fairseq could run code → why it cannot run what a checkpoint contains."""


def calls() -> Iterator[tuple[str, str, list[ast.expr]]]:
    """Yield the file, the name of the function and the arguments of all calls."""
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escape sequences
                tree = ast.parse(path.read_bytes())
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    yield path.relative_to(ROOT).as_posix(), ast.unparse(node.func), node.args


def test_every_setting_that_fairseq_evaluates_is_restricted(attack):
    evaluated = {
        ast.unparse(arguments[0]).rpartition(".")[2]
        for _, name, arguments in calls()
        if name.removeprefix("utils.").removeprefix("options.") in EVALUATES and arguments
    }
    assert {"encoder_layers", "left_pad_source", "xformers_att_config", "wer_args"} <= evaluated
    for name in evaluated - COMMAND_LINE - {"strip()"}:  # a line of codedataset's audio data
        try:
            assert check_value(name, "f()") is None, f"{name} reaches eval"
        except ValueError:
            attack.outcomes.append("refused")


def test_every_file_in_which_fairseq_runs_code_is_reviewed(attack):
    found = {file for file, name, _ in calls() if name in RUNS_CODE or name.startswith("subprocess.")}
    assert found == set(REVIEWED)
    relumt.register()
    assert not [name for name in sys.modules if name.startswith(("fairseq.examples", "examples."))]
    attack.outcomes.append("handled")
