"""Small closed word lists and rules that tell verbs, prepositions and noun phrases apart.

There is no tagger here: a verb is a word of the list, or one that ends like a past form.
"""

from __future__ import annotations

from collections.abc import Sequence

from ga_dspy.lm.lexicon import NATIONALITIES, noun_type


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BE = _words("is was are were be been being became becomes remains")
DETERMINERS = _words("a an the his her its their this that these those another one some several")
PREPOSITIONS = _words(
    "in on at of by from to for with under as into between near after before during against over "
    "through within alongside about until since upon across around"
)
RELATIVES = _words("who which that whose whom where")
PRONOUNS = _words("he she it they his her its their")
HEDGES = _words(
    "may might possibly probably perhaps likely reportedly allegedly supposedly presumably "
    "apparently seems appears unknown unclear not never no reputed believed rumored rumoured "
    "thought claimed"
)
ADVERBS = _words(
    "also now currently well then later first originally primarily mainly mostly formerly "
    "jointly briefly officially subsequently eventually widely commonly often usually only just "
    "still previously together directly entirely recently"
)
_IRREGULAR = _words(
    "born won wrote written sang sung led made known held found built began became came fought "
    "gave given grew had left lost met met played ran sold sent shot spoke stood taught took taken "
    "told went won worn drew drawn flew rose run set cut put lay lies lie lives lived stars "
    "starring features featuring plays playing serves hosts tells follows contains includes "
    "borders owns operates leads holds stands consists covers connects runs flows belongs comes "
    "makes produces publishes teaches works writes directs edits represents depicts joined "
    "comprising containing including consisting serving working living holding winning based "
    "located situated headquartered brought bought caught fell felt kept paid beat chose chosen "
    "knew threw rode broke broken bore shown spent struck swam threw thrown sought hit"
)
_NOT_PAST = _words("united hundred red naked sacred wicked speed breed need seed feed bed shed")


def is_verb(word: str) -> bool:
    """Whether a lower-case word reads like a verb of a statement."""
    if word in BE or word in _IRREGULAR or word in ("has", "have", "had"):
        return True
    return word.endswith("ed") and len(word) > 4 and word not in _NOT_PAST and "-" not in word


def is_predicate(words: Sequence[str], i: int) -> bool:
    """Whether word `i` is a verb here, and not a participle before its noun ("animated series")."""
    word = words[i]
    if not is_verb(word):
        return False
    if word in BE or not word.endswith(("ed", "ing", "en")):
        return True
    before = words[i - 1] if i else ""
    if i + 1 == len(words):
        return before not in DETERMINERS
    after = words[i + 1]
    noun_before = before in DETERMINERS | PREPOSITIONS | NATIONALITIES or before.isdigit()
    return not noun_before or after in PREPOSITIONS


def relation_phrase(words: Sequence[str], most: int = 6) -> str:
    """Make a relation of the words between two mentions; "" where they hold no statement.

    The phrase starts at the last verb, keeps what leads to its preposition and drops auxiliaries
    before a participle, articles at the end, and the role in "directed by the actor X".

    >>> relation_phrase("is a 1994 American animated film directed by".split())
    'directed by'
    >>> relation_phrase("was born in".split()), relation_phrase("and is the county seat of".split())
    ('born in', 'is the county seat of')
    >>> relation_phrase("married the British actress".split())
    'married'
    """
    low = [word.lower() for word in words]
    start = max((i for i in range(len(low)) if is_predicate(low, i)), default=-1)
    if start < 0 or HEDGES & set(low[max(start - 3, 0) :]):
        return ""
    phrase = _trimmed([w for w in low[start:] if w not in ADVERBS and not w.isdigit()])
    if phrase[0] in ("be", "been", "being"):
        phrase = phrase[1:]
    phrase = _second_complement(phrase)
    if len(phrase) > most:
        phrase = _shortened(phrase, most)
    return " ".join(word.capitalize() if word in NATIONALITIES else word for word in phrase)


def _second_complement(phrase: list[str]) -> list[str]:
    """Of "is a city in and the county seat of" only what governs the name after it."""
    joints = [i for i, w in enumerate(phrase[:-1]) if w == "and" and phrase[i + 1] in DETERMINERS]
    if not joints or phrase[0] not in BE or phrase[-1] not in PREPOSITIONS:
        return phrase
    return [phrase[0], *phrase[joints[-1] + 1 :]]


def _trimmed(phrase: list[str]) -> list[str]:
    """Cut what follows the verb or its last preposition where it only introduces the name."""
    phrase = _without_article(phrase)
    last = next((i for i in range(len(phrase) - 1, -1, -1) if phrase[i] in PREPOSITIONS), 0)
    rest = phrase[last + 1 :]
    if rest and (last or phrase[0] not in BE) and (len(rest) > 3 or any(map(_introduces, rest))):
        return _without_article(phrase[: last + 1])
    return phrase


def _without_article(phrase: list[str]) -> list[str]:
    while phrase and (phrase[-1] in DETERMINERS or not phrase[-1][-1].isalnum()):
        phrase = phrase[:-1]
    return phrase


def _introduces(word: str) -> bool:
    return noun_type(word) in ("person", "group", "work", "place") or word in NATIONALITIES


def _shortened(phrase: list[str], most: int) -> list[str]:
    """Make "is a mining community in" of "is a small unincorporated mining community in"."""
    inner = PREPOSITIONS & set(phrase[1:-1])
    if phrase[0] in BE and phrase[-1] in PREPOSITIONS and not inner:
        article = phrase[1:2] if phrase[1] in DETERMINERS else []
        return [phrase[0], *article, *phrase[-3:]]
    return []
