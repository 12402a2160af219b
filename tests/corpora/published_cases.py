"""Small files of the same form as the published ones, for every corpus."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

from relumt.corpora.published_corpora import Corpus
from relumt.corpora.published_texts import MISALIGNED_TALK

LINES = 30
TALK = """<url>http://example.org/{n}</url>
<keywords>talks, {language}</keywords>
<talkid>{n}</talkid>
<title>Title {n}, {language}</title>
<description>TED Talk: it’s {n}.</description>
"""


def write_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def evaluation_set(language):
    lines = ['<srcset setid="news" srclang="any">']
    for number, segments in enumerate((2, 1)):
        lines.append(f'<DOC sysid="ref" docid="article-{number}" genre="news">')
        lines += [f'<seg id="{i}">„{language} – 今天“ {number}.{i}, said he.</seg>' for i in range(1, segments + 1)]
        lines.append("</DOC>")
    return "\n".join(lines)


def iwslt14_evaluation_set(name):
    """Return three segments of a talk, or 150 of the talk that is misaligned."""
    talk, segments = (MISALIGNED_TALK, 150) if "TEDX" in name else ("69", 3)
    lines = [f'<seg id="{i}"> The U.S. and “you’ll” see {i} things. </seg>\n' for i in range(1, segments + 1)]
    return f'<?xml version="1.0"?>\n<doc docid="{talk}" genre="lectures">\n{"".join(lines)}</doc>\n'


def plain(language, number):
    lines = [f"“{language}” line {i} of {number} – is it?" for i in range(LINES)]
    if number:
        lines[3] = ""  # to be dropped
    return "\n".join(lines) + "\n"


def talks(language):
    sentences = [f" Sentence {i} of talk {{n}}, isn't it? \n" for i in range(40)]
    return "".join((TALK + "".join(sentences)).format(n=n, language=language) for n in range(3))


def marked(language):
    documents = [[f"{language}: Line {i} of {n}.\n" for i in range(size)] for n, size in enumerate((3, 2))]
    return "".join("<d>\n" + "".join(lines) for lines in documents)


def running(language):
    """Return 100 lines with a session from the 50th; the 60th and 61st, and two others by side, recur in `marked`."""
    lines = [f"{language}: Running line {i} of all." for i in range(100)]
    lines[50] = "Resumption of the session" if language == "en" else "Wiederaufnahme der Sitzung"
    lines[60] = lines[62 if language == "en" else 63] = f"{language}: line  '0' / of 1"
    return "".join(f"{line}\n" for line in lines)


def content(text, language, number) -> bytes:
    """Return what a text holds; `number` counts the training texts, and is 0 for others."""
    by_form = {"segments": evaluation_set, "talks": talks, "marked": marked, "running": running}
    if text.form == "iwslt14_segments":
        return iwslt14_evaluation_set(text.member).encode()
    return (plain(language, number) if text.form == "plain" else by_form[text.form](language)).encode()


def write_published(corpus: Corpus, raw: Path, skip_requested: bool = True) -> None:
    """Write every file of a corpus, with the names that its makers gave to what is in it."""
    files: dict[str, dict[str, bytes]] = {}
    requested = () if skip_requested else corpus.on_request
    train = [(pair, number) for number, pair in enumerate([*corpus.train, *requested], start=not corpus.tokenized)]
    for pair, number in (*train, *((pair, 0) for pair in (*corpus.valid, *corpus.test))):
        sides = [content(text, language, number) for text, language in zip(pair, corpus.languages, strict=True)]
        members = files.setdefault(pair[0].source.name, {})
        if pair[0].separator:
            named = pair[0].member.rpartition(".")[2].split("-")  # titles.fi-en
            columns = [sides[corpus.languages.index(language)].decode().splitlines() for language in named]
            lines = [pair[0].separator.join(line) for line in zip(*columns, strict=True)]
            members[pair[0].member] = "\n".join(lines).encode() + b"\n"
            continue
        for text, side in zip(pair, sides, strict=True):
            name = text.member.replace("[hn]", "h").replace("*", "book")
            files.setdefault(text.source.name, {})[name] = gzip.compress(side) if name.endswith(".gz") else side
    raw.mkdir(exist_ok=True)
    for name, members in files.items():
        if name.endswith(".zip"):
            write_zip(raw / name, members)
        elif name.endswith((".tgz", ".tar", ".gz")):
            write_tar(raw / name, members, "w" if name.endswith(".tar") else "w:gz")
        else:
            (raw / name).write_bytes(members[""])
