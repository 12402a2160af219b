"""Hooks of mkdocs: bring pages from the checkout's root to the site, and name the files that the site lacks."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link to the pages where the site has them; leave the text of links to other files of the checkout."""
    if page.file.src_path in PAGES:
        return re.sub(r"\]\(docs/", "](", markdown)
    markdown = re.sub(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, PAGES))})", r"](\1", markdown)
    return re.sub(r"\[([^][]*)\]\((?:\.\./){2}[^)]*\)", r"\1", markdown)
