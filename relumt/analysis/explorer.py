"""The explorer of attention maps: one HTML page, or a part of report.html, that opens offline. Shapes: H T S."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relumt.analysis.attention_maps import SentenceMaps
from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ModuleNotFoundError as error:
    raise UserError(f"attention maps need {error.name}; run pip install '.[report]' in the checkout") from None


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
                "weights": _encode_map(weights),
                "norms": _encode_map(sentence.norms[module]) if module in sentence.norms else None,
                "joint_norms": _encode_map(sentence.joint_norms[module][None]) if module in sentence.norms else None,
            }
            for module, weights in sentence.maps.items()
        ],
    }


def _encode_map(numbers: Tensor) -> dict[str, Any]:
    """Encode a map [H, T, S] in two bytes per number, as bfloat16.

    bfloat16 has 8 significant bits at any magnitude, so shares of rows of small weights are right, too. Only an exact 0
    becomes 0, so that zeros and null rows can be told from small weights.
    """
    rounded = numbers.bfloat16()
    smallest = numbers.sign().bfloat16() * torch.finfo(torch.bfloat16).tiny
    codes = torch.where(rounded == 0, smallest, rounded).view(torch.int16).numpy().astype("<i2")
    return {"shape": numbers.shape, "data": base64.b64encode(codes.tobytes()).decode("ascii")}
