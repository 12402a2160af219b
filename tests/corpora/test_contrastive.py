"""ContraPro and the sets of Bawden et al. in their own formats, from small files written by hand."""

import gzip
import json
from pathlib import Path

import pytest

from relumt.cli import main
from relumt.corpora.contrastive import ExampleInContext, FormExample, find_keys, read_examples
from relumt.files import write_lines

DOCUMENT = [
    ("Where is the key?", "Wo ist der Schlüssel?"),
    ("On the table.", "Auf dem Tisch."),
    ("I see it .", "Ich sehe ihn ."),
    ("Then take it.", "Dann nimm ihn."),
]


def entry(number, wrong, distance=0, intrasegmental=None, document="1999_1_2.de"):
    source, target = DOCUMENT[number - 1]
    return {
        "document id": document, "segment id": number, "ante distance": distance, "intrasegmental": intrasegmental,
        "src segment": source.replace(" .", "."), "ref segment": target.replace(" .", "."),
        "src pronoun": "It", "ref pronoun": "ihn", "corpus": "opensubtitles",
        "errors": [{"contrastive": one, "replacement": "sie", "type": "pronominal coreference"} for one in wrong],
    }  # fmt: skip


ENTRIES = [
    entry(1, ["Wo ist die Schlüssel?"], 0, True),
    entry(3, ["Ich sehe sie.", "Ich sehe es."], 2, False),
    entry(4, ["Dann nimm sie."], 12),
]


def translation(kind, before, right, wrong, **more):
    """Return two sentences of Bawden et al. with a right or semi-correct and a wrong second one."""
    return {kind: [before, right], "incorrect": [before, wrong]} | more


ANAPHORA = {
    "10": {
        "inspired by": ["a", "b"],
        "src": ["The house is new.", "It is big."],
        "trg": [
            translation("correct", "La maison est neuve.", "Elle est grande.", "Il est grand.", type="f.sg"),
            translation("semi-correct", "Le chalet est neuf.", "Il est grand.", "Elle est grande.", type="m.sg"),
        ],
    },
    "9": {"src": ["A.", "B."], "trg": [translation("correct", "C.", "D.", "E.")]},
}
MOLE = {
    "src": ["The doctor came.", "Look at this mole."],
    "trg": translation("correct", "Le docteur est venu.", "Regardez ce grain de beauté.", "Regardez cette taupe."),
}


def write_sides(prefix, pairs):
    for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        write_lines(Path(f"{prefix}.{language}"), side)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files of all forms."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contrapro.json").write_text(json.dumps(ENTRIES, indent=1), encoding="utf-8")
    (tmp_path / "z.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, ENTRIES)).encode()))
    (tmp_path / "documents" / "1999").mkdir(parents=True)
    write_sides(tmp_path / "documents" / "1999" / "1999_1_2", DOCUMENT)
    lexical = {"1": {"type": "disambig", "examples": [MOLE]}}
    for name, content in (("anaphora", ANAPHORA), ("lexical-choice", lexical)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def imported(folder, *arguments):
    main(["import-contrast", *arguments, "--out", "examples"])
    return read_examples(folder / "examples", ExampleInContext)


def contexts(examples):
    return [list(zip(example.source_context, example.target_context, strict=True)) for example in examples]


def test_contrapro_with_documents(folder, capsys):
    first, second, third = imported(folder, "contrapro.json", "--documents", "documents")
    assert second.source == "I see it." and second.variants == ("Ich sehe ihn.", "Ich sehe sie.", "Ich sehe es.")
    assert contexts([first, second, third]) == [[], DOCUMENT[:2], DOCUMENT[:3]]
    assert [example.distance for example in (first, second, third)] == [0, 2, 12]
    assert second.categories == {"pronouns": "it:ihn", "antecedent": "before the sentence"}
    assert third.categories["antecedent"] == "unknown"
    assert "wrote 3 examples with 1.67 sentences of context on average" in capsys.readouterr().err
    assert "document" not in find_keys(folder / "examples")


def test_no_context_is_a_choice_and_entries_may_be_lines(folder):
    examples = imported(folder, "z.jsonl.gz", "--documents", "documents", "--context", "0")
    assert contexts(examples) == [[]] * 3


def test_the_documents_of_a_set_whose_identifiers_are_paths(folder):
    entries = [entry(3, ["Ich sehe sie."], -1, document="1999/1999_1_2")]
    (folder / "contrapro.json").write_text(json.dumps(entries), encoding="utf-8")
    (example,) = imported(folder, "contrapro.json", "--documents", "documents")
    assert contexts([example]) == [DOCUMENT[:2]] and example.distance is None


def write_text_files(folder, per_line, start):
    """Write what the authors' script writes, with `start` in place of sentences before the first."""
    padded = [(start, start)] * per_line + DOCUMENT
    text, context = [], []
    for given in ENTRIES:
        number = given["segment id"]
        for variant in (given["ref segment"], *(error["contrastive"] for error in given["errors"])):
            text.append((DOCUMENT[number - 1][0], variant))
            context += padded[number - 1 : number - 1 + per_line]
    write_sides(folder / "contrapro.text", text)
    write_sides(folder / "contrapro.context", context)


@pytest.mark.parametrize(("per_line", "start"), [(1, ""), (3, "null")])
def test_contrapro_with_its_text_files_has_the_contexts_of_the_documents(folder, per_line, start):
    write_text_files(folder, per_line, start)
    from_text = imported(folder, "contrapro.json", "--text", "contrapro")
    assert from_text == imported(folder, "contrapro.json", "--documents", "documents", "--context", str(per_line))


def test_the_sets_of_bawden(folder):
    examples = imported(folder, "anaphora.json")
    assert [example.block for example in examples] == ["9", "10", "10"]
    assert examples[1].source == "It is big." and examples[1].variants == ("Elle est grande.", "Il est grand.")
    assert contexts(examples)[1] == [("The house is new.", "La maison est neuve.")]
    assert [example.categories for example in examples] == [
        {"translation": "correct"},
        {"translation": "correct", "pronoun": "f.sg"},
        {"translation": "semi-correct", "pronoun": "m.sg"},
    ]
    assert {example.distance for example in examples} == {1}
    (example,) = imported(folder, "lexical-choice.json")
    assert example.variants == ("Regardez ce grain de beauté.", "Regardez cette taupe.")
    assert example.categories == {"type": "disambig"} and example.distance is None
    assert contexts([example]) == [[("The doctor came.", "Le docteur est venu.")]]


def failing(folder, capsys, *arguments):
    """Return the message of an import that ends with status 2, one line and no file."""
    with pytest.raises(SystemExit) as stopped:
        imported(folder, *arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and not (folder / "examples").exists()
    return line


SAME = json.dumps({"1": {"src": ["a", "b"], "trg": [translation("correct", "c", "d", "d")]}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "has no examples"),
        ('{"1": {"src": ["a", "b"], "trg": [{"incorrect": ["c", "d"]}]}}', "example 1: KeyError: 'semi-correct'"),
        (SAME, "example 1: ValidationError: two variants are the same"),
        (json.dumps([ENTRIES[0], entry(1, [" "])]), "example 2: ValidationError: the source or a variant is empty"),
    ],
)
def test_files_of_another_format(folder, capsys, content, message):
    (folder / "contrapro.json").write_text(content, encoding="utf-8")
    assert message in failing(folder, capsys, "contrapro.json")


DOCUMENTS = ["contrapro.json", "--documents", "documents"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["anaphora.json", "--documents", "documents"], "has its own contexts; drop --documents, --text and --inputs"),
        ([*DOCUMENTS, "--language-pair", "en-fr"], "documents: has no document YEAR/NAME for '1999_1_2.de'"),
        ([*DOCUMENTS, "--language-pair", "de"], "expected two languages"),
    ],
)
def test_requests_that_cannot_work(folder, capsys, arguments, message):
    assert message in failing(folder, capsys, *arguments)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["text.en"], "contrapro.text.en has 6 lines, contrapro.text.de has 7"),
        (["context.en", "context.de"], "have 7 and 6 lines, expected 7 and a multiple of it"),
    ],
)
def test_text_files_of_another_set(folder, capsys, names, message):
    write_text_files(folder, 1, "")
    for path in (folder / f"contrapro.{name}" for name in names):
        write_lines(path, path.read_text(encoding="utf-8").splitlines()[1:])
    assert message in failing(folder, capsys, "contrapro.json", "--text", "contrapro")


INPUTS = ["Mull.<eos> Just mull.<eos> Do it.", "Why?<eos>  <eos> You don't.", "Yes."]
FORMS = [
    {"src segment": line.split("<eos> ")[-1], "expected": form, "ante distance": 1, "rule": "DO.ELL", "segment id": 4}
    for line, form in zip(INPUTS, ("Denk", "Braucht", "Ja"), strict=True)
]


def test_ctxpro_with_its_inputs(folder, capsys):
    (folder / "ctxpro.json").write_text(json.dumps(FORMS))
    write_lines(folder / "inputs", INPUTS)
    arguments = ["import-contrast", "ctxpro.json", "--inputs", "inputs", "--out", "examples"]
    for count, contexts in ((5, [["Mull.", "Just mull."], ["Why?"], []]), (1, [["Just mull."], ["Why?"], []])):
        main([*arguments, "--context", str(count)])
        examples = read_examples(folder / "examples", FormExample)
        assert [example.source_context for example in examples] == contexts
    assert examples[0] == FormExample("Do it.", "Denk", ["Just mull."], 1, {"rule": "DO.ELL"})
    assert "expected" in find_keys(folder / "examples")
    (folder / "examples").unlink()
    capsys.readouterr()
    problems = {"inputs: has 2 lines, but the test set 3": INPUTS[:2], "inputs:1: is not the sentence": INPUTS[::-1]}
    for message, inputs in problems.items():
        write_lines(folder / "inputs", inputs)
        assert message in failing(folder, capsys, *arguments[1:4])
