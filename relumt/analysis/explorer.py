"""The explorer of attention maps: one HTML page, or a part of report.html, that opens offline. Shapes: H T S."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from relumt.analysis.attention_maps import SentenceMaps
from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ModuleNotFoundError as error:
    raise UserError(f"a page with attention maps needs {error.name}; pip install 'relumt[report]'") from None


def page_templates() -> Environment:
    """Return the templates of HTML pages; every value is escaped unless a template says otherwise."""
    return Environment(
        loader=PackageLoader("relumt.analysis", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write_explorer(title: str, maps: Mapping[str, Sequence[SentenceMaps]], path: Path) -> None:
    """Write a page with the attention maps of several models.

    Args:
        title: heading of the page.
        maps: the maps of each model, by its label.
        path: the HTML file.
    """
    page = page_templates().get_template("attend.html").render(title=title, maps=encode_models(maps.items()))
    write_text_atomically(path, page)


def encode_models(models: Iterable[tuple[str, Sequence[SentenceMaps]]]) -> str:
    """Return the maps of models with these labels as JSON for the explorer."""
    return json.dumps([{"name": name, "sentences": list(map(_encode_sentence, maps))} for name, maps in models])


def _encode_sentence(sentence: SentenceMaps) -> dict[str, Any]:
    return {
        "index": sentence.index,
        "origin": sentence.origin,
        "source": sentence.source,
        "decoder_input": sentence.decoder_input,
        "target": sentence.target,
        "maps": [
            {
                "site": sentence.sites[module],
                "weights": _quantize(weights),
                "norms": _quantize(sentence.norms[module]) if module in sentence.norms else None,
                "joint_norms": _quantize(sentence.joint_norms[module][None]) if module in sentence.norms else None,
            }
            for module, weights in sentence.maps.items()
        ],
    }


def _quantize(weights: Tensor) -> dict[str, Any]:
    """Encode a map [H, T, S] in one byte per number, in units of each head's largest magnitude over 255.

    Only an exact 0 becomes 0, so that zeros and null rows can be told from small weights.
    """
    numbers = weights.numpy()
    magnitudes = np.abs(numbers)
    largest = magnitudes.max(axis=(1, 2), initial=0.0, keepdims=True)
    scaled = np.rint(magnitudes / np.where(largest > 0, largest, 1.0) * 255)
    scaled[(numbers != 0) & (scaled == 0)] = 1
    return {
        "shape": numbers.shape,
        "largest": largest.flatten().tolist(),
        "data": base64.b64encode(scaled.astype(np.uint8).tobytes()).decode("ascii"),
        "negative": base64.b64encode(np.packbits(numbers < 0).tobytes()).decode("ascii") if (numbers < 0).any() else "",
    }
