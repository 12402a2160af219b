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

FILES = {
    *(f"{split}.{kind}" for split in ("train", "valid", "test") for kind in ("de", "en", "docs")),
    "test.de-en.align",
    "test.contrast.jsonl",
    "corpus.json",
}


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
    for split in ("train", "valid", "test"):
        sizes = [int(size) for size in lines(corpus / f"{split}.docs")]
        assert sum(sizes) == len(lines(corpus / f"{split}.de")) == len(lines(corpus / f"{split}.en"))
    assert len(lines(corpus / "test.de-en.align")) == len(lines(corpus / "test.de"))
    summary = json.loads((corpus / "corpus.json").read_text())
    assert summary["documents"] == {"train": 3000, "valid": 30, "test": 300}
    assert summary["sentences"]["train"] == len(lines(corpus / "train.de"))


def test_contrast_examples_are_sentences_of_the_test_set(corpus):
    sizes = [int(size) for size in lines(corpus / "test.docs")]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    german, english = lines(corpus / "test.de"), lines(corpus / "test.en")
    examples = [json.loads(line) for line in lines(corpus / "test.contrast.jsonl")]
    assert len(examples) == sum("it" in sentence.split() for sentence in english)
    for example in examples:
        line = starts[example["document"]] + example["sentence"]
        assert (example["source"], example["target"]) == (english[line], german[line])
        assert 2 <= example["sentence"] < sizes[example["document"]]
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


def test_the_files_depend_on_the_seed_only(tmp_path):
    first, second, other = synth(tmp_path / "a"), synth(tmp_path / "b"), synth(tmp_path / "c", seed=2)
    assert first == second
    assert all(first[name] != other[name] for name in FILES - {"valid.docs", "test.docs", "train.docs"})


def test_the_test_set_does_not_depend_on_the_size_of_the_training_set(tmp_path):
    small, large = synth(tmp_path / "a", documents=3), synth(tmp_path / "b", documents=12)
    assert {name: small[name] for name in FILES if name.startswith("test")} == {
        name: large[name] for name in FILES if name.startswith("test")
    }
    assert large["train.de"].startswith(small["train.de"])


seeds = st.integers(min_value=0, max_value=2**32)
GENDER_BY_NOUN = {noun.nominative: gender for gender in GENDERS for noun in lexicon.THINGS[gender].items} | {
    modifier.german + noun.nominative.lower(): gender
    for gender in GENDERS
    for noun in lexicon.THINGS[gender].items
    for modifier in lexicon.COMPOUND_MODIFIERS.items
    if noun.may_head_compound
}


@pytest.fixture(scope="module")
def many():
    return list(generate_documents(Random("many"), 1500))


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


def test_pronouns_are_balanced_exactly_in_each_case(many):
    forms = Counter(
        (sentence.pronoun[1], sentence.german[sentence.pronoun[0]])
        for document in many
        for sentence in document.sentences
        if sentence.pronoun
    )
    for case in ("nominative", "accusative"):
        counts = {forms[case, form] for form in PRONOUNS[case].values()}
        assert len(counts) == 1
        assert counts.pop() > 300


genders = st.sampled_from(GENDERS)
MAKERS = {
    "introduction": lambda rng, gender: introduction(rng, gender),
    "distractor": lambda rng, gender: distractor(rng, gender),
    "pronoun_subject": lambda rng, gender: pronoun_sentence(rng, "nominative").in_gender(gender),
    "pronoun_object": lambda rng, gender: pronoun_sentence(rng, "accusative").in_gender(gender),
    "filler": lambda rng, gender: filler(rng),
}
makers = st.sampled_from(sorted(MAKERS))


@given(seeds, genders, makers)
def test_alignments_are_in_range_and_cover_all_content_words(seed, gender, maker):
    sentence = MAKERS[maker](Random(seed), gender)
    for german, english in sentence.alignment:
        assert 0 <= german < len(sentence.german)
        assert 0 <= english < len(sentence.english)
    unaligned_german = set(range(len(sentence.german))) - {german for german, _ in sentence.alignment}
    unaligned_english = set(range(len(sentence.english))) - {english for _, english in sentence.alignment}
    assert {sentence.german[index] for index in unaligned_german} <= {",", "dass"}
    assert {sentence.english[index] for index in unaligned_english} <= {"to"}
    assert sorted(set(sentence.alignment)) == list(sentence.alignment)


@given(seeds, st.sampled_from(["pronoun_subject", "pronoun_object"]))
def test_the_gender_changes_only_the_pronoun(seed, maker):
    case = {"pronoun_subject": "nominative", "pronoun_object": "accusative"}[maker]
    masculine, feminine, neuter = (MAKERS[maker](Random(seed), gender) for gender in GENDERS)
    position = masculine.pronoun[0]
    assert masculine.english == feminine.english == neuter.english
    assert [s.german[position] for s in (masculine, feminine, neuter)] == list(PRONOUNS[case].values())
    for other in (feminine, neuter):
        assert other.german[:position] == masculine.german[:position]
        assert other.german[position + 1 :] == masculine.german[position + 1 :]
    assert (position, masculine.english.index("it")) in masculine.alignment


NOUNS = [
    Noun("masculine", "Tisch", "Tisch", ("table",)),
    Noun("feminine", "Lampe", "Lampe", ("lamp",)),
    Noun("neuter", "Bett", "Bett", ("bed",)),
]


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
