"""Sentence patterns of the generated corpus: aligned German and English tokens.

`generated_corpus` combines four kinds of sentences:

introduction   a thing is the subject: `heute steht der alte Tisch im Garten .`
distractor     a person is the subject, a thing the object: `Anna hat die Lampe gekauft .`
pronoun        `it` is the subject or the object: `der Lehrer sagt , dass er sehr schwer ist .`
filler         only persons occur: `Peter lacht , weil das Kind tanzt .`

In a pronoun sentence, only the pronoun itself depends on the gender. German puts the finite verb second in a main
clause and last in a subordinate one. The particle, participle or infinitive closes the clause. A pronoun object
precedes the adverb, a noun object follows it. English has subject, verb, object, place, adverb, and may front the
adverb, whether German does or not.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random
from typing import NamedTuple

from relumt.corpora import generated_lexicon as lexicon
from relumt.corpora import generated_phrases as phrases
from relumt.corpora.generated_lexicon import PRONOUNS, THIRD, Auxiliary, Pair, Verb, Weighted, Words
from relumt.corpora.generated_phrases import EMPTY, AlignedWords, Phrase, Subject, joined, linked, pair

# Probability of an optional constituent if the sentence is one clause, or two.
ALONE, BESIDE_ANOTHER = 0.7, 0.25
NEGATED = 0.125


class VerbGroup(NamedTuple):
    """The words of a verb in a clause.

    In German, a main clause uses `finite` (second position) and `bracket` (end), a subordinate clause uses `final`. In
    English, `english_particle` follows the object.
    """

    finite: AlignedWords
    bracket: AlignedWords
    final: AlignedWords
    english: AlignedWords
    english_particle: AlignedWords


def _one_link(
    verb: Verb, finite: Words, bracket: Words, final: Words, english: Words, auxiliary: str, negated: Phrase
) -> VerbGroup:
    """Return a verb group whose words have one link; `auxiliary` is the English one if the verb is negated."""
    link = object()
    do, base = linked((auxiliary,), verb.english_base, link)
    predicate = do + negated.english + base if negated.english else linked((), english, link).english
    in_german, particle = linked(finite + bracket, verb.english_particle, link)
    return VerbGroup(in_german[:1], in_german[1:], linked(final, (), link).german, predicate, particle)


def present_tense(verb: Verb, person: int, negated: Phrase) -> VerbGroup:
    """Return `räumt ... auf`, `aufräumt`: `tidies ... up`; negated `does not tidy ... up`."""
    finite, bracket, english = verb.present[person], tuple(verb.particle.split()), verb.english_present[person]
    final, auxiliary = verb.particle + finite, "does" if person == THIRD else "do"
    return _one_link(verb, (finite,), bracket, (final,), english, auxiliary, negated)


def perfect_tense(verb: Verb, person: int, negated: Phrase) -> VerbGroup:
    """Return `hat ... aufgeräumt`, `aufgeräumt hat`: `tidied ... up`; negated `did not tidy ... up`."""
    finite = ((lexicon.SEIN.present if verb.perfect_with_sein else lexicon.HABEN_PRESENT)[person],)
    participle = (verb.participle,)
    return _one_link(verb, finite, participle, participle + finite, verb.english_past, "did", negated)


def with_auxiliary(auxiliary: Auxiliary, verb: Verb, person: int, negated: Phrase) -> VerbGroup:
    """Return `wird ... aufräumen`, `aufräumen wird`: `will (not) tidy ... up`."""
    link = object()
    finite, english = linked((auxiliary[0][person],), auxiliary[1][person])
    infinitive, base = linked((verb.infinitive,), verb.english_base, link)
    particle = linked((), verb.english_particle, link).english
    return VerbGroup(finite, infinitive, infinitive + finite, english + negated.english + base, particle)


Tense = Callable[[Verb, int, Phrase], VerbGroup]
REPORTING_TENSES: Weighted[Tense] = Weighted([present_tense, perfect_tense], [3, 2])


def _tenses(*auxiliaries: Auxiliary) -> Weighted[Tense]:
    """Return present and perfect, for two thirds of all clauses, and the auxiliaries, the first most often."""
    ranks = [1 / (rank + 3) for rank in range(len(auxiliaries))]
    governed: list[Tense] = [partial(with_auxiliary, auxiliary) for auxiliary in auxiliaries]
    return Weighted([present_tense, perfect_tense, *governed], [1.1 * sum(ranks), 0.9 * sum(ranks), *ranks])


NEGATABLE_TENSES = _tenses(*lexicon.AUXILIARIES)
"""Tenses whose negation means the same in both languages. (`muss nicht` does not mean `must not`.)"""


Style = tuple[Weighted[Tense], Weighted[Pair], Weighted[Pair]]
"""The tenses, the adverbs of the past and the other adverbs that suit a kind of subject."""

_ANY_AUXILIARIES = (*lexicon.AUXILIARIES, *lexicon.UNNEGATED_AUXILIARIES)
_PERSON_TENSES = _tenses(*_ANY_AUXILIARIES, *lexicon.PERSON_AUXILIARIES)
THING_STYLE = _tenses(*_ANY_AUXILIARIES), lexicon.THING_ADVERBS_PAST, lexicon.THING_ADVERBS
PERSON_STYLE = _PERSON_TENSES, lexicon.PERSON_ADVERBS_PAST, lexicon.PERSON_ADVERBS


class Clause(NamedTuple):
    """The constituents of a clause. Those that are absent are EMPTY."""

    subject: Subject
    verb: VerbGroup
    pronoun: Phrase = EMPTY
    adverb: Phrase = EMPTY
    recipient: Phrase = EMPTY
    object: Phrase = EMPTY
    negation: Phrase = EMPTY
    place: Phrase = EMPTY
    predicate: Phrase = EMPTY

    @property
    def middle(self) -> AlignedWords:
        """What stands between the finite verb or the subject and the end of the clause in German."""
        objects = joined(self.pronoun, self.adverb, self.recipient, self.object)
        return joined(objects, self.negation, self.place, self.predicate).german

    @property
    def english(self) -> AlignedWords:
        """The whole clause in English."""
        before = self.subject.phrase.english + self.verb.english + joined(self.pronoun, self.object).english
        after = joined(self.predicate, self.recipient, self.place, self.adverb).english
        return before + self.verb.english_particle + after


def main_clause(clause: Clause) -> Phrase:
    """Put the subject first and the verb second: `Anna räumt heute den Keller auf`."""
    subject, verb = clause.subject.phrase, clause.verb
    return Phrase(subject.german + verb.finite + clause.middle + verb.bracket, clause.english)


def fronted_clause(front: Phrase, clause: Clause) -> Phrase:
    """Put `front` first, then verb and subject: `heute räumt Anna den Keller auf`. English keeps subject and verb."""
    verb = clause.verb
    german = front.german + verb.finite + clause.subject.phrase.german + clause.middle + verb.bracket
    return Phrase(german, front.english + clause.english)


def subordinate_clause(conjunction: Phrase, clause: Clause) -> Phrase:
    """Put the verb last: `weil Anna heute den Keller aufräumt`."""
    german = clause.subject.phrase.german + clause.middle + clause.verb.final
    return joined(conjunction, Phrase(german, clause.english))


class Sentence(NamedTuple):
    """A sentence pair: tokens, alignment as pairs (German index, English index), and the pronoun if it has one.

    `pronoun` is the index of the pronoun among the German tokens, and its case.
    """

    german: Words
    english: Words
    alignment: tuple[tuple[int, int], ...]
    pronoun: tuple[int, str] | None

    def in_gender(self, gender: str) -> "Sentence":
        """Return the sentence with its pronoun in the given gender."""
        assert self.pronoun, "only sentences with a pronoun have a gender"
        position, case = self.pronoun
        german = (*self.german[:position], PRONOUNS[case][gender], *self.german[position + 1 :])
        return self._replace(german=german)


MakeClause = Callable[[float], Clause]
Pattern = Callable[[Random, MakeClause], Phrase]


def introduction(rng: Random, gender: str) -> Sentence:
    """Generate one clause whose subject is a thing of the given gender."""
    subject = Subject(phrases.thing_phrase(rng, gender, "nominative", phrases.DETERMINERS.draw(rng)))
    return _finished(_alone(rng, partial(_thing_clause, rng, subject)))


def distractor(rng: Random, gender: str) -> Sentence:
    """Generate a sentence whose subject is a person and whose object is a thing of the given gender."""
    article = phrases.OBJECT_DETERMINERS.draw(rng)
    thing = phrases.thing_phrase(rng, gender, "accusative", article)
    # German negates an indefinite object with `kein`, never with `nicht`.
    negated = 0.0 if article.german in ("ein", "kein") else NEGATED
    return _finished(DISTRACTOR_PATTERNS.draw(rng)(rng, partial(_acting_clause, rng, EMPTY, thing, negated)))


def pronoun_sentence(rng: Random, case: str) -> Sentence:
    """Generate a sentence with `it` as a subject (nominative) or object. Set its gender with `in_gender`."""
    make_clause = partial(_acting_clause, rng, phrases.pronoun(case), EMPTY, NEGATED)
    if case == "nominative":
        make_clause = partial(_thing_clause, rng, Subject(phrases.pronoun(case)))
    return _finished(PRONOUN_PATTERNS.draw(rng)(rng, make_clause), case)


def filler(rng: Random) -> Sentence:
    """Generate two clauses about persons."""
    return _finished(FILLER_PATTERNS.draw(rng)(rng, partial(_resting_clause, rng)))


def _thing_clause(rng: Random, subject: Subject, optional: float) -> Clause:
    """Generate what a thing does: it stands somewhere, shines, belongs to someone, or is old."""
    kind = THING_CLAUSES.draw(rng)
    quality = EMPTY
    if kind is lexicon.LINKING:
        quality = joined(pair(lexicon.DEGREES.draw(rng)), pair(lexicon.THING_ADJECTIVES.draw(rng)))
    negated = 0.0 if quality.german else NEGATED
    clause = _with_verb(rng, subject, kind.draw(rng), THING_STYLE, negated, optional)
    if kind is lexicon.DATIVE:
        return clause._replace(object=phrases.person_phrase(rng, "dative"))
    place_share = 1.0 if kind is lexicon.POSITION else optional / 2 if quality.german else optional
    return clause._replace(predicate=quality, place=phrases.place_phrase(rng, place_share))


THING_CLAUSES = Weighted([lexicon.POSITION, lexicon.THING_INTRANSITIVE, lexicon.DATIVE, lexicon.LINKING], [3, 3, 2, 3])


def _acting_clause(rng: Random, pronoun_thing: Phrase, noun_thing: Phrase, negated: float, optional: float) -> Clause:
    """Generate what a person does to a thing, which is either a pronoun or a noun phrase."""
    is_giving = rng.random() < 0.2
    verb = (lexicon.DITRANSITIVE if is_giving else lexicon.TRANSITIVE).draw(rng)
    clause = _with_verb(rng, phrases.person_subject(rng), verb, PERSON_STYLE, negated, optional)
    clause = clause._replace(pronoun=pronoun_thing, object=noun_thing)
    if not is_giving:
        return clause._replace(place=phrases.place_phrase(rng, optional / 2))
    person = phrases.person_phrase(rng, "dative")
    # `dem Kind`, `to the child`: German expresses `to` by the case, so `to` is not aligned.
    return clause._replace(recipient=Phrase(person.german, (("to", None), *person.english)))


def _resting_clause(rng: Random, optional: float) -> Clause:
    """Generate what a person does without an object."""
    is_described = rng.random() < 0.5
    subject = Subject(phrases.described_person(rng, "nominative")) if is_described else phrases.person_subject(rng)
    clause = _with_verb(rng, subject, lexicon.PERSON_INTRANSITIVE.draw(rng), PERSON_STYLE, NEGATED, optional)
    return clause._replace(place=phrases.place_phrase(rng, optional))


def _with_verb(rng: Random, subject: Subject, verb: Verb, style: Style, negated: float, optional: float) -> Clause:
    """Combine subject and verb, with probability `negated` a negation, and with probability `optional` an adverb."""
    negation = linked(("nicht",), ("not",)) if rng.random() < negated else EMPTY
    tenses, past_adverbs, other_adverbs = style
    tense = (NEGATABLE_TENSES if negation.german else tenses).draw(rng)
    adverbs = past_adverbs if tense is perfect_tense else other_adverbs
    adverb = pair(adverbs.draw(rng)) if rng.random() < optional else EMPTY
    return Clause(subject, tense(verb, subject.person, negation), adverb=adverb, negation=negation)


def _alone(rng: Random, make_clause: MakeClause) -> Phrase:
    """Use the clause as the sentence. Each language may front the adverb, independently of the other."""
    clause = make_clause(ALONE)
    plain = main_clause(clause)
    if not clause.adverb.german:
        return plain
    fronted = fronted_clause(clause.adverb, clause._replace(adverb=EMPTY))
    german = fronted if rng.random() < 0.5 else plain
    return Phrase(german.german, (fronted if rng.random() < 0.3 else plain).english)


def _reported(rng: Random, make_clause: MakeClause) -> Phrase:
    """Return `Anna sagt , dass ...`. English sometimes omits `that`."""
    verb, subject, tense = lexicon.REPORTING.draw(rng), phrases.person_subject(rng), REPORTING_TENSES.draw(rng)
    matrix = main_clause(Clause(subject, tense(verb, subject.person, EMPTY)))
    conjunction = linked(("dass",), ("that",)) if rng.random() < 0.6 else Phrase((("dass", None),))
    return joined(matrix, GERMAN_COMMA, subordinate_clause(conjunction, make_clause(BESIDE_ANOTHER)))


def _in_second_clause(rng: Random, make_clause: MakeClause) -> Phrase:
    """Return `Peter wartet , weil ...`."""
    reason = subordinate_clause(pair(lexicon.CONJUNCTIONS.draw(rng)), make_clause(BESIDE_ANOTHER))
    return joined(main_clause(_resting_clause(rng, 0.0)), GERMAN_COMMA, reason)


def _after_first_clause(rng: Random, make_clause: MakeClause) -> Phrase:
    """Return `weil Peter wartet , ...`, with the verb before the subject."""
    reason = subordinate_clause(pair(lexicon.CONJUNCTIONS.draw(rng)), _resting_clause(rng, 0.0))
    return fronted_clause(joined(reason, linked((",",), (",",))), make_clause(BESIDE_ANOTHER))


GERMAN_COMMA = Phrase(((",", None),))

_ANY_PATTERNS: tuple[Pattern, ...] = (_alone, _reported, _in_second_clause, _after_first_clause)
DISTRACTOR_PATTERNS = Weighted(_ANY_PATTERNS, [6, 2, 1, 1])
PRONOUN_PATTERNS = Weighted(_ANY_PATTERNS, [3, 3, 2, 2])
FILLER_PATTERNS = Weighted(_ANY_PATTERNS[1:], [2, 1, 1])


def _finished(phrase: Phrase, pronoun_case: str | None = None) -> Sentence:
    """Add the period, turn links into index pairs and locate the pronoun."""
    german, english = joined(phrase, linked((".",), (".",)))
    links, english_links = ([link for _, link in words] for words in (german, english))
    alignment = [
        (index, translation)
        for (index, link), (translation, other) in product(enumerate(links), enumerate(english_links))
        if link is not None and link == other
    ]
    slot = (links.index(phrases.PRONOUN_LINK), pronoun_case) if pronoun_case else None
    return Sentence(tuple([word for word, _ in german]), tuple([word for word, _ in english]), tuple(alignment), slot)
