"""Every place where fairseq could run code from a string or a file, and why a checkpoint cannot reach it.

The list describes the installed release of fairseq. With another release this test fails: review what is new, and
extend `relumt.checkpoints.settings` or the list.
"""

import ast
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import fairseq
import pytest

import relumt

pytestmark = pytest.mark.attack("checkpoints")

ROOT = Path(fairseq.__file__).parents[1]

RUNS_CODE = {
    *("eval", "exec", "compile", "globals", "__import__", "importlib.import_module", "importlib.reload"),
    *("pickle.load", "pickle.loads", "dill.load", "marshal.loads", "joblib.load", "shelve.open", "runpy.run_path"),
    *("torch.load", "torch.hub.load", "torch.hub.load_state_dict_from_url", "np.load", "numpy.load"),
    *("yaml.load", "yaml.full_load", "yaml.unsafe_load", "hydra.utils.instantiate", "os.system", "os.popen"),
}
"""Calls that run code from their arguments or from a file; `subprocess.*` is added to them."""

MODEL = "a model that KNOWN_NAMES does not allow"
TASK = "a task, or its data, that KNOWN_NAMES does not allow"
OPTIMIZER = "built from the command line only; the optimizer's settings of a checkpoint are dropped"
OWN_NAMES = "imports fairseq's own files by their names"
COMMAND_LINE = "the argument is a flag of the command line"
PROCESSES = "reads what other processes of the same training send"
VETTED = "relumt.checkpoints.fairseq_hooks hands over a vetted checkpoint instead; weights_only is torch's default"

REASONS = {
    "fairseq/checkpoint_utils.py::load_checkpoint_to_cpu": VETTED,
    "fairseq/checkpoint_utils.py::load_ema_from_checkpoint": "no command calls it; weights_only is torch's default",
    "fairseq/criterions/__init__.py": OWN_NAMES,
    "fairseq/criterions/ctc.py::CtcCriterion.__init__": "a criterion that KNOWN_NAMES does not allow",
    "fairseq/data/audio/__init__.py::import_transforms": OWN_NAMES,
    "fairseq/data/audio/audio_utils.py::get_features_from_npy_or_audio": TASK,
    "fairseq/data/audio/audio_utils.py::get_features_or_waveform_from_stored_zip": TASK,
    "fairseq/data/audio/data_cfg.py::get_config_from_yaml": TASK,
    "fairseq/data/audio/feature_transforms/global_cmvn.py::GlobalCMVN.__init__": TASK,
    "fairseq/data/audio/raw_audio_dataset.py::RawAudioDataset.__init__": TASK,
    "fairseq/data/codedataset.py::CodeDataset.__init__": TASK,
    "fairseq/data/codedataset.py::CodeDataset.get_data_handlers": TASK,
    "fairseq/data/codedataset.py::parse_manifest": TASK,
    "fairseq/data/encoders/__init__.py": OWN_NAMES,
    "fairseq/data/fasta_dataset.py::FastaDataset.__init__": "TASK_TYPES does not allow dataset_impl 'fasta'",
    "fairseq/data/fasta_dataset.py::FastaDataset._build_index": "TASK_TYPES does not allow dataset_impl 'fasta'",
    "fairseq/data/plasma_utils.py::PlasmaArray.start_server": "runs a fixed command, for --use-plasma-view",
    "fairseq/data/plasma_utils.py::PlasmaStore.start": "runs a command with --plasma-path of the command line",
    "fairseq/distributed/utils.py::_broadcast_object_slow": PROCESSES,
    "fairseq/distributed/utils.py::_infer_slurm_init": "runs scontrol with Slurm's environment variables",
    "fairseq/distributed/utils.py::all_gather_list": PROCESSES,
    "fairseq/logging/meters.py::MetersDict.load_state_dict": "the class is one of MeterName",
    "fairseq/model_parallel/criterions/__init__.py": OWN_NAMES,
    "fairseq/model_parallel/models/__init__.py": OWN_NAMES,
    "fairseq/models/__init__.py::import_models": OWN_NAMES,
    "fairseq/models/ema/__init__.py": OWN_NAMES,
    "fairseq/models/fconv.py::FConvModel.build_model": MODEL,
    "fairseq/models/fconv_lm.py::FConvLanguageModel.build_model": MODEL,
    "fairseq/models/fconv_self_att.py::FConvModelSelfAtt.build_model": MODEL,
    "fairseq/models/hubert/hubert.py::HubertModel.__init__": MODEL,
    "fairseq/models/huggingface/__init__.py": OWN_NAMES,
    "fairseq/models/lightconv_lm.py::LightConvLanguageModel.build_model": MODEL,
    "fairseq/models/speech_to_text/hub_interface.py::S2THubInterface.get_prediction": MODEL,
    "fairseq/models/speech_to_text/s2t_wav_transformer.py::SpeechWavTransformerEncoder.__init__": MODEL,
    "fairseq/models/speech_to_text/xm_transformer.py::XMTransformerModel.build_model": MODEL,
    "fairseq/models/text_to_speech/vocoder.py::CodeHiFiGANVocoder.__init__": MODEL,
    "fairseq/models/text_to_speech/vocoder.py::HiFiGANVocoder.__init__": MODEL,
    "fairseq/models/transformer_lm.py::TransformerLanguageModel.build_model": MODEL,
    "fairseq/models/wav2vec/wav2vec.py::Wav2VecModel.__init__": MODEL,
    "fairseq/models/wav2vec/wav2vec.py::Wav2VecModel.__init__.make_aggregator": MODEL,
    "fairseq/models/wav2vec/wav2vec2.py::Wav2Vec2Model.__init__": MODEL,
    "fairseq/models/wav2vec/wav2vec2.py::Wav2Vec2Model._get_feat_extract_output_lengths": MODEL,
    "fairseq/modules/quantization/pq/em.py::EM.load": "called only with --quantization-config-path",
    "fairseq/modules/quantization/scalar/ops.py::emulate_int": "the name is one of fairseq's own functions",
    "fairseq/optim/__init__.py": OWN_NAMES,
    "fairseq/optim/adafactor.py::FairseqAdafactor.optimizer_config": OPTIMIZER,
    "fairseq/optim/adam.py::FairseqAdam.optimizer_config": OPTIMIZER,
    "fairseq/optim/adamax.py::FairseqAdamax.optimizer_config": OPTIMIZER,
    "fairseq/optim/cpu_adam.py::FairseqCPUAdam.optimizer_config": OPTIMIZER,
    "fairseq/optim/fused_adam.py::FusedAdamV1.__init__": "imports a module of a fixed name",
    "fairseq/optim/fused_adam.py::get_fused_adam_class": "imports a module of a fixed name",
    "fairseq/optim/fused_lamb.py::FairseqLAMB.optimizer_config": OPTIMIZER,
    "fairseq/optim/lr_scheduler/__init__.py": OWN_NAMES,
    "fairseq/scoring/__init__.py": OWN_NAMES,
    "fairseq/speech_generator.py::SpeechGenerator.__init__": TASK,
    "fairseq/tasks/__init__.py::import_tasks": OWN_NAMES,
    "fairseq/tasks/audio_pretraining.py::AudioPretrainingTask.post_save": TASK,
    "fairseq/tasks/text_to_speech.py::TextToSpeechTask.get_speaker_embeddings": TASK,
    "fairseq/utils.py::eval_bool": "called by models and tasks that KNOWN_NAMES does not allow",
    "fairseq/utils.py::eval_str_dict": "MODEL_TYPES allows neither encoder_ nor decoder_xformers_att_config",
    "fairseq/utils.py::eval_str_list": "MODEL_TYPES allows only lists of numbers for adaptive_softmax_cutoff",
    "fairseq/utils.py::import_user_module": "called with --user-dir of the command line; user_dir is dropped",
    "fairseq_cli/eval_lm.py::main": COMMAND_LINE,
    "fairseq_cli/validate.py::main": COMMAND_LINE,
}
"""FILE::FUNCTION → why it cannot run what a checkpoint contains."""


def dotted_name(node: ast.expr) -> str:
    """Return a.b.c for such an expression, "" for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted_name(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def places(node: ast.AST, where: list[str]) -> Iterator[str]:
    """Yield the functions below a node that make one of the calls."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            name = dotted_name(child.func)
            if name in RUNS_CODE or name.startswith("subprocess."):
                yield ".".join(where)
        is_scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from places(child, [*where, child.name] if is_scope else where)


def test_every_place_where_fairseq_runs_code_is_reviewed(attack):
    found = set()
    for path in sorted([*(ROOT / "fairseq").rglob("*.py"), *(ROOT / "fairseq_cli").rglob("*.py")]):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("fairseq/examples/"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escape sequences
                tree = ast.parse(path.read_bytes())
            found |= {f"{name}::{place}".removesuffix("::") for place in places(tree, [])}
    assert found == set(REASONS)
    attack.outcomes.append("handled")


def test_the_examples_in_fairseq_are_not_imported(attack):
    relumt.register()
    assert not [name for name in sys.modules if name.startswith(("fairseq.examples", "examples."))]
    attack.outcomes.append("handled")
