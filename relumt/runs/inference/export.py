"""Write a trained model with its preparation of text to a folder: `relumt export`."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

import relumt
from relumt.errors import UserError
from relumt.files import atomic_folder
from relumt.plugin.checkpoints.loading import fairseq_config, open_checkpoint_safely
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from relumt.plugin.model.mechanism_transformer import vocabulary_fingerprint
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.inference.loaded_model import find_checkpoint, find_data_bin, find_record_of_checkpoint
from relumt.runs.inference.model_folder import write_model
from relumt.runs.inference.search_settings import SearchSettings, search_of_run
from relumt.runs.inference.stock_checkpoint import stock_checkpoint
from relumt.runs.inference.text_encoding import require_languages, require_subwords, subwords_path

STOCK_CHECKPOINT = "model.pt"

Writer = Callable[[Path, Mapping[str, Any], Path, SearchSettings], None]


def write_stock_checkpoint(folder: Path, checkpoint: Mapping[str, Any], path: Path, search: SearchSettings) -> None:
    """Write model.pt; fairseq takes the search from its command line. See `stock_checkpoint`."""
    save_checkpoint_durably(stock_checkpoint(checkpoint, path), folder / STOCK_CHECKPOINT)


FORMATS: dict[str, Writer] = {"fairseq": write_stock_checkpoint, "safetensors": write_model}
"""Format → what writes a checkpoint to a folder in it."""


def export_model(checkpoint_or_run: Path, data: Path | None, file_format: str, out: Path) -> Path:
    """Write a model to a new folder; return the path of the checkpoint.

    Args:
        checkpoint_or_run: a checkpoint, or the folder of a run for its scored (else best) checkpoint.
        data: data-bin; None for the one that the run names.
        file_format: a key of FORMATS.
        out: the folder, which must be empty or missing.

    Raises:
        UserError: the model cannot be loaded, the format cannot represent it, or there is something in `out`.
    """
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out}: is not empty; choose another --out, or delete the folder")
    relumt.register()
    path = find_checkpoint(checkpoint_or_run)
    data_bin = open_data_bin(data or find_data_bin(checkpoint_or_run))
    checkpoint = open_checkpoint_safely(path)
    record = find_record_of_checkpoint(path)
    require_vocabulary(path, checkpoint, data_bin)
    task = fairseq_config(checkpoint, path)["task"]
    require_languages(data_bin, (task.get("source_lang"), task.get("target_lang")))
    if data_bin.prepared:  # fairseq-preprocess leaves no subwords in a data-bin
        require_subwords(data_bin)
    with atomic_folder(out) as stage:
        FORMATS[file_format](stage.result, checkpoint, path, search_of_run(record))
        write_preparation(stage.result, data_bin)
    return path


def require_vocabulary(path: Path, checkpoint: Mapping[str, Any], data_bin: DataBin) -> None:
    """Raise UserError if a checkpoint was trained with another vocabulary than that of a data-bin.

    Checkpoints of relumt's models have a fingerprint of both dictionaries; others tell only the number of symbols.
    """
    source, target = (Dictionary.load(str(data_bin.dictionary_path(language))) for language in data_bin.languages)
    recorded = getattr(fairseq_config(checkpoint, path)["model"], "vocabulary_fingerprint", None)
    if recorded is not None:
        differs = recorded != vocabulary_fingerprint(source, target)
    else:
        embeddings = [checkpoint["model"].get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder")]
        sizes = zip(embeddings, (source, target), strict=True)
        differs = any(embedding is not None and len(embedding) != len(symbols) for embedding, symbols in sizes)
    if differs:
        raise UserError(
            f"{path}: was trained with another vocabulary than that of {data_bin.folder}; give the data-bin that it "
            "was trained on (--data, or DATA_BIN for the scripts)"
        )


def write_preparation(folder: Path, data_bin: DataBin) -> None:
    """Write what turns text into a model's input and back: dictionaries, subwords and a short prepare.json."""
    for path in map(data_bin.dictionary_path, data_bin.languages):
        shutil.copyfile(path, folder / path.name)
    subwords = subwords_path(data_bin)
    if subwords and subwords.is_file():  # fairseq-preprocess leaves none in a data-bin
        shutil.copyfile(subwords, folder / subwords.name)
    preparation = {
        "source": data_bin.source,
        "target": data_bin.target,
        "tokenized": data_bin.tokenized,
        "lowercased": data_bin.lowercased,
        "punctuation_normalized": data_bin.punctuation_normalized,
        "bpe": data_bin.subwords,
        "bpe_sha256": data_bin.bpe_sha256,
        "plain_references": False,
    }
    (folder / "prepare.json").write_text(json.dumps(preparation, indent=2) + "\n", encoding="utf-8")
