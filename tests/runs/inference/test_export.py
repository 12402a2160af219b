"""`relumt export`: stock fairseq computes the same logits; safetensors translate as the checkpoint does."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from fairseq.models import build_model
from fairseq.models.transformer import TransformerModel
from fairseq.tasks import setup_task
from safetensors.torch import save

import relumt
from relumt.cli import main
from relumt.errors import UserError
from relumt.runs.inference.export import CONFIG, WEIGHTS, as_attributes, deduplicate, read_weights, stock_checkpoint
from relumt.runs.inference.loaded_model import load_model
from relumt.runs.inference.search import SearchSettings
from tests.plugin.model.build import arguments, build, sample
from tests.runs.inference.cases import texts

LENGTHS = [(7, 5), (3, 8), (1, 2)]
SHARED = ("--attention", "softmax", "--share-decoder-input-output-embed")


def export(path, data, file_format, out):
    main(["export", str(path), "--data", str(data), "--to", file_format, "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def safetensors_folder(lively_checkpoint, data, tmp_path_factory):
    path = lively_checkpoint("--attention", "relu", "--attention-qk-norm", "log_n")
    return export(path, data, "safetensors", tmp_path_factory.mktemp("export") / "model")


@pytest.fixture(scope="module")
def fairseq_folder(lively_checkpoint, data, tmp_path_factory):
    return export(lively_checkpoint(*SHARED), data, "fairseq", tmp_path_factory.mktemp("export") / "model")


def test_safetensors_translate_as_the_checkpoint(translator, safetensors_folder, capsys):
    exported = relumt.load(safetensors_folder, cpu=True)
    exported.search = translator.search
    ours, expected = exported.translate(texts()), translator.translate(texts())
    assert ours == expected
    assert type(exported.loaded.model) is type(translator.loaded.model)
    names = {path.name for path in safetensors_folder.iterdir()}
    assert names == {CONFIG, WEIGHTS, "prepare.json", "dict.de.txt", "dict.en.txt"}
    modes = {path.stat().st_mode for path in safetensors_folder.iterdir()}
    assert len(modes) == 1, "all files are as readable as any new one"


def test_a_tensor_with_several_names_is_stored_once(tmp_path):
    embedding, flat = torch.rand(4, 2), torch.rand(6)
    weights = {"a": embedding, "b": embedding.view(4, 2), "c": embedding.t(), "d": flat[:3], "e": flat[3:], "f": flat}
    weights |= {"empty": torch.empty(0), "also empty": torch.empty(0)}
    stored, other_names = deduplicate(weights)
    assert other_names == {"b": "a"} and stored.keys() == weights.keys() - {"b"}
    path = tmp_path / WEIGHTS
    path.write_bytes(save(stored, other_names))
    found = read_weights(path)
    assert found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in weights)


def set_in_config(section, name, value):
    def damage(folder):
        config = json.loads((folder / CONFIG).read_text())
        config[section][name] = value
        (folder / CONFIG).write_text(json.dumps(config))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (set_in_config("search", "beam", 0), "not in the expected format"),
        (set_in_config("model", "encoder_layers", 3), "does not fit the data"),
        (set_in_config("model", "_name", "hubertus"), "rejected the model 'hubertus'"),
        (lambda folder: (folder / "dict.en.txt").unlink(), "No such file or directory"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(safetensors_folder, tmp_path, damage, message):
    copy = shutil.copytree(safetensors_folder, tmp_path / "copy")
    damage(copy)
    with pytest.raises(UserError, match=message) as refused:
        relumt.load(copy, cpu=True)
    assert "\n" not in str(refused.value)


def test_an_exported_softmax_model_is_the_stock_transformer(fairseq_folder, lively_checkpoint, data):
    exported = load_model(fairseq_folder / "model.pt", fairseq_folder, cpu=True)[0].model
    ours = load_model(lively_checkpoint(*SHARED), data, cpu=True)[0].model
    assert type(exported) is TransformerModel
    arguments = torch.load(fairseq_folder / "model.pt", weights_only=True)["args"]
    assert arguments.arch == arguments["arch"] == "transformer" and arguments.source_lang == "de"
    arguments.data = str(fairseq_folder)  # as CTranslate2's converter does
    converted = build_model(arguments, setup_task(arguments))
    assert type(converted) is TransformerModel
    converted.load_state_dict(exported.state_dict())
    batch = sample(LENGTHS)
    real = batch["target"].ne(1)
    expected = ours(**batch["net_input"])[0][real]
    torch.testing.assert_close(exported(**batch["net_input"])[0][real], expected, rtol=0, atol=1e-5)


def make_checkpoint(*flags, **task):
    """A checkpoint's contents for a model with these flags."""
    model = build("mechanism_transformer", *flags)
    settings = vars(arguments("--arch", "mechanism_transformer", *flags))
    cfg = {"model": as_attributes(settings), "task": {"_name": "translation", **task}}
    return {"cfg": cfg, "model": model.state_dict()}


@pytest.mark.parametrize("variant", ["relu", "gelu"])
def test_feedforward_variants_that_fairseq_has_are_its_activations(variant):
    flags = ("--feedforward", variant, "--encoder-normalize-before", "--decoder-normalize-before")
    exported = stock_checkpoint(make_checkpoint(*flags), "model.pt")
    assert exported["args"].activation_fn == variant and not hasattr(exported["args"], "feedforward")
    stock = build("transformer", "--activation-fn", variant, *flags[2:], seed=2).eval()
    stock.load_state_dict(exported["model"])
    batch = sample(LENGTHS)
    real = batch["target"].ne(1)
    expected = build("mechanism_transformer", *flags).eval()(**batch["net_input"])[0][real]
    torch.testing.assert_close(stock(**batch["net_input"])[0][real], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("flags", "task", "reason"),
    [
        (("--attention", "relu"), {}, "has relu attention, which plain fairseq and CTranslate2 lack"),
        (("--attention-gate", "headwise"), {}, "--attention-gate headwise"),
        (("--attention-qk-norm", "log_n"), {}, "--attention-qk-norm"),
        (("--feedforward", "swiglu"), {}, "feed-forward layers swiglu, which"),
        (("--feedforward-encoder", "gelu"), {}, "feed-forward layers gelu and stock, which"),
        ((), {"_name": "translation_documents", "document_length": 512}, "chunks of documents of up to 512 tokens"),
    ],
)
def test_a_model_without_stock_counterpart_is_refused_in_one_line(flags, task, reason):
    with pytest.raises(UserError, match=f"{reason}.*; export it --to safetensors, which relumt loads$"):
        stock_checkpoint(make_checkpoint(*flags, **task), "model.pt")


def test_the_data_bin_of_the_opposite_direction_is_refused(lively_checkpoint, data, tmp_path, capsys):
    """Its joint dictionaries are the same."""
    reverse = shutil.copytree(data, tmp_path / "copy")
    preparation = json.loads((reverse / "prepare.json").read_text()) | {"source": "en", "target": "de"}
    (reverse / "prepare.json").write_text(json.dumps(preparation))
    with pytest.raises(SystemExit) as refusal:
        export(lively_checkpoint(), reverse, "safetensors", tmp_path / "out")
    assert refusal.value.code == 2 and not (tmp_path / "out").exists()
    assert "translates en-de, but the model de-en" in capsys.readouterr().err


def test_a_failed_export_leaves_nothing(lively_checkpoint, data, tmp_path, monkeypatch, capsys):
    out = tmp_path / "folder" / "out"
    path = lively_checkpoint("--attention", "relu")
    with pytest.raises(SystemExit):
        export(path, data, "fairseq", out)
    with pytest.raises(SystemExit):
        export(tmp_path / "no-run", data, "fairseq", out)
    monkeypatch.setattr("relumt.runs.inference.export.write_preparation", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(path, data, "safetensors", out)
    assert not out.parent.exists()
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("kept")
    with pytest.raises(SystemExit):
        export(path, data, "safetensors", out)
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3 and "no such checkpoint" in errors[1] and "is not empty" in errors[2]


PLAIN_FAIRSEQ = """
import sys
from fairseq_cli.generate import cli_main
cli_main()
assert not any(name.partition(".")[0] == "relumt" for name in sys.modules)
"""


@pytest.mark.slow
def test_plain_fairseq_generates_the_same_translations(fairseq_folder, lively_checkpoint, data):
    translator = relumt.load(lively_checkpoint(*SHARED), data=data, cpu=True)
    translator.search = SearchSettings(max_len_b=12)
    flags = ["-s", "de", "-t", "en", "--path", str(fairseq_folder / "model.pt"), "--max-len-b", "12", "--cpu"]
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_FAIRSEQ, str(data), *flags, "--required-batch-size-multiple", "1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = (line.split("\t") for line in done.stdout.splitlines() if line.startswith("D-"))
    found = {int(kind[2:]): (float(score), text) for kind, score, text in lines}
    for number, translation in enumerate(translator.translate(texts())):
        assert found[number] == (pytest.approx(translation.score, abs=1e-3), translation.text)
