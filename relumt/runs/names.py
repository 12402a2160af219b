"""Names and paths that can be part of a run's folder and of fairseq's arguments."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from relumt.errors import UNPRINTABLE, UserError, quote
from relumt.runs.field_types import LANGUAGE, MAX_NAME_BYTES, NAME, SUBSET


def is_name(name: str) -> bool:
    """Return whether `name` can be the name of a dataset or a model, and not only a path."""
    return bool(
        re.match(NAME, name) and not UNPRINTABLE.search(name) and len(name.encode(errors="replace")) <= MAX_NAME_BYTES
    )


def require_name(name: str, what: str) -> None:
    """Raise UserError unless `name` can be the name of a dataset or a model; `what` says what it names."""
    if not is_name(name):
        raise UserError(
            f"{what} {quote(name)}: expected a name without '/', ':', line breaks and other control characters, of at "
            f"most {MAX_NAME_BYTES} bytes, that does not begin with '-' or '.'; rename it"
        )


def require_path(path: Path, what: str) -> None:
    """Raise UserError if the scripts or fairseq could not take `path` as one argument; `what` says what it is."""
    if UNPRINTABLE.search(str(path)) or ":" in str(path):
        raise UserError(
            f"{what} {quote(str(path))}: expected a path without ':', line breaks and other control characters; "
            "rename the folder"
        )


def require_language(language: str, where: Path) -> None:
    """Raise UserError unless `language` is a language code; `where` is what names it."""
    if not re.match(LANGUAGE, language):
        raise UserError(
            f"{where}: {quote(language)} is not a language code; expected letters, digits, '-' and '_', as in 'de' or "
            "'zh-CN'; prepare the data-bin again"
        )


def require_subset_name(subset: str) -> None:
    """Raise UserError unless `subset` can be the name of a subset of a data-bin."""
    if not re.match(SUBSET, subset):
        raise UserError(f"subset {quote(subset)}: expected train, valid, test or another name of letters and digits")


def list_known(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the most similar known name, if there is one, and all known names."""
    names = list(known)
    similar = get_close_matches(name, names, n=1)
    suggestion = f"did you mean {similar[0]}? " if similar else ""
    return f"{suggestion}known: {', '.join(names)}"
