"""The generated corpus: its files, its documents, and the grammar of single sentences."""

import json
from collections import Counter, defaultdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relumt.cli import main
from relumt.corpora import generated_lexicon as lexicon
from relumt.corpora.generated_corpus import generate_documents
from relumt.corpora.generated_grammar import distractor, filler, introduction, pronoun_sentence
from relumt.corpora.generated_lexicon import GENDERS, PRONOUNS, Noun, Pair
from relumt.corpora.generated_phrases import noun_phrase

TEXTS = {f"{split}.{kind}" for split in ("train", "valid", "test") for kind in ("de", "en", "docs")}
FILES = TEXTS | {"test.de-en.align", "test.contrast.jsonl", "corpus.json"}


def synth(out, seed=1, documents=9, valid=3, test=6):
    sizes = ["--documents", str(documents), "--valid-documents", str(valid), "--test-documents", str(test)]
    main(["synth", "--seed", str(seed), *sizes, "--out", str(out)])
    return {path.name: path.read_bytes() for path in out.iterdir()}


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus of the size of the demo's."""
    out = tmp_path_factory.mktemp("synth") / "corpus"
    synth(out, documents=3000, valid=30, test=300)
    return out


def test_all_files_are_written_and_agree_in_length(corpus):
    assert {path.name for path in corpus.iterdir()} == FILES
    summary = json.loads((corpus / "corpus.json").read_text())
    assert summary["documents"] == {"train": 3000, "valid": 30, "test": 300}
    for split, size in summary["sentences"].items():
        assert sum(int(size) for size in lines(corpus / f"{split}.docs")) == size
        assert {len(lines(corpus / f"{split}.{language}")) for language in ("de", "en")} == {size}
    assert len(lines(corpus / "test.de-en.align")) == size


def test_contrast_examples_are_beginnings_of_documents_of_the_test_set(corpus):
    sizes = [int(size) for size in lines(corpus / "test.docs")]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    german, english = lines(corpus / "test.de"), lines(corpus / "test.en")
    examples = [json.loads(line) for line in lines(corpus / "test.contrast.jsonl")]
    assert len(examples) == sum("it" in sentence.split() for sentence in english)
    for example in examples:
        for side, text in (("source", english), ("target", german)):
            document = [*example[f"{side}_context"], example[side]]
            assert any(text[start : start + len(document)] == document for start in starts) and len(document) > 2
        variants = [sentence.split() for sentence in (example["target"], *example["wrong"])]
        changed = [set(tokens) for tokens in zip(*variants, strict=True) if len(set(tokens)) > 1]
        assert changed in ([{"er", "sie", "es"}], [{"ihn", "sie", "es"}])


def test_single_sentences_determine_one_pronoun_in_three(corpus):
    answers = defaultdict(Counter)
    for line in lines(corpus / "test.contrast.jsonl"):
        example = json.loads(line)
        answers[example["source"]][example["target"]] += 1
    best = sum(counts.most_common(1)[0][1] for counts in answers.values())
    assert best * 3 == sum(counts.total() for counts in answers.values())


@pytest.mark.parametrize("side", ["de", "en"])
def test_the_training_set_has_many_words_and_few_test_sentences(corpus, side):
    train, test = lines(corpus / f"train.{side}"), lines(corpus / f"test.{side}")
    assert len({token for line in train for token in line.split(" ")}) >= 900
    known = set(train)
    assert sum(line in known for line in test) < 0.01 * len(test)


def test_the_files_depend_on_the_seed_and_the_test_set_not_on_the_size_of_the_training_set(tmp_path):
    first, again, other = synth(tmp_path / "a"), synth(tmp_path / "b", documents=12), synth(tmp_path / "c", seed=2)
    tests = {name for name in FILES if name.startswith("test")}
    assert all(first[name] == again[name] for name in tests) and again["train.de"].startswith(first["train.de"])
    assert all(first[name] != other[name] for name in FILES - {"valid.docs", "test.docs", "train.docs"})


seeds = st.integers(min_value=0, max_value=2**32)
THINGS = [noun for gender in GENDERS for noun in lexicon.THINGS[gender].items]
GENDER_BY_NOUN = {noun.nominative: noun.gender for noun in THINGS} | {
    modifier.german + noun.nominative.lower(): noun.gender
    for noun in THINGS
    for modifier in lexicon.COMPOUND_MODIFIERS.items
    if noun.may_head_compound
}


def things(sentence):
    """Return the genders of the things that a sentence mentions, read from its words."""
    return [GENDER_BY_NOUN[token] for token in sentence.german if token in GENDER_BY_NOUN]


@given(seeds)
@settings(max_examples=40)
def test_a_pronoun_refers_to_the_last_subject_with_a_distractor_of_another_gender_between(seed):
    for document in generate_documents(Random(seed), 3):
        topic, has_distractor = None, False
        for sentence, kind in zip(document.sentences, document.kinds, strict=True):
            if kind == "I":
                (topic,), has_distractor = things(sentence), False
            if kind == "D":
                (thing,), has_distractor = things(sentence), True
                assert thing != topic
            if kind == "P":
                position, case = sentence.pronoun
                assert sentence.german[position] == PRONOUNS[case][topic]
                assert things(sentence) == [] and has_distractor


MAKERS = [
    introduction,
    distractor,
    lambda rng, gender: pronoun_sentence(rng, "nominative").in_gender(gender),
    lambda rng, gender: pronoun_sentence(rng, "accusative").in_gender(gender),
    lambda rng, _: filler(rng),
]


@given(seeds, st.sampled_from(GENDERS), st.sampled_from(MAKERS))
def test_alignments_are_in_range_and_cover_all_content_words(seed, gender, maker):
    sentence = maker(Random(seed), gender)
    sides = sentence.german, sentence.english
    for words, aligned, may_be_unaligned in zip(
        sides, zip(*sentence.alignment, strict=True), ({",", "dass"}, {"to"}), strict=True
    ):
        assert set(aligned) <= set(range(len(words)))
        assert {word for index, word in enumerate(words) if index not in aligned} <= may_be_unaligned
    if sentence.pronoun:
        assert (sentence.pronoun[0], sentence.english.index("it")) in sentence.alignment
    assert sorted(set(sentence.alignment)) == list(sentence.alignment)


NOUNS = [Noun(gender, word, word, ("x",)) for gender, word in zip(GENDERS, ("Tisch", "Lampe", "Bett"), strict=True)]


@pytest.mark.parametrize(
    ("stem", "case", "expected"),
    [
        ("der", "nominative", "der alte Tisch, die alte Lampe, das alte Bett"),
        ("der", "accusative", "den alten Tisch, die alte Lampe, das alte Bett"),
        ("der", "dative", "dem alten Tisch, der alten Lampe, dem alten Bett"),
        ("ein", "nominative", "ein alter Tisch, eine alte Lampe, ein altes Bett"),
        ("kein", "accusative", "keinen alten Tisch, keine alte Lampe, kein altes Bett"),
        ("mein", "dative", "meinem alten Tisch, meiner alten Lampe, meinem alten Bett"),
        ("dies", "nominative", "dieser alte Tisch, diese alte Lampe, dieses alte Bett"),
    ],
)
def test_noun_phrases_agree_in_case_and_gender(stem, case, expected):
    phrases = [noun_phrase(noun, case, Pair(stem, ("x",)), Pair("alt", ("old",))) for noun in NOUNS]
    assert ", ".join(" ".join(word for word, _ in phrase.german) for phrase in phrases) == expected


def test_a_separable_verb_is_parsed_into_its_forms():
    verb = next(verb for verb in lexicon.TRANSITIVE.items if verb.infinitive == "mitnehmen")
    assert verb.particle == "mit" and verb.present == ("nehme", "nimmst", "nimmt", "nehmen")
    assert (verb.participle, verb.english_past, verb.english_particle) == ("mitgenommen", ("took",), ("along",))
