"""Namesakes stay separate; an entity in several wordings is merged."""

from __future__ import annotations

from itertools import product

import pytest
from namesakes import FORMS, Case, read_cases

from ga_dspy.graph import KnowledgeGraph, from_json, parse, to_json
from ga_dspy.grounding import ground
from ga_dspy.passage import Passage

CASES = """
2 Norwell # two towns are told apart by the country and the state they lie in
@+Old towns: Norwell is an old town in England with a minster.|-|place|~ -> located in -> England
@+Towns of the Bay: Norwell is a town in Massachusetts, by the sea.|-|place|~ -> located in -> Massachusetts
2 Dunmore # two towns are told apart by what follows their names
@+Ada Orme: Ada Orme was born in Dunmore, Ohio, in 1901.|-|place|Ada Orme -> born in -> ~
@+Ivo Dent: Ivo Dent died in Dunmore, Scotland.|-|place|Ivo Dent -> died in -> ~
2 Carrow County # two counties are told apart by their states
@+Hiram Field: Hiram Field is an airport in Carrow County, Ohio.|-|place; county|Hiram Field -> located in -> ~
@+Mount Lar: Mount Lar is a hill in Carrow County, Texas.|-|place; county|Mount Lar -> located in -> ~
2 Apple # a company is no fruit
@+Apple Inc.: Apple is a technology company founded in 1976 in Los Altos.|-|organisation; technology company|~ -> founded in -> 1976
@+Fruit trees: The apple is a round fruit of an apple tree, grown worldwide.|apple|other; round fruit|~ -> grows on -> apple tree
2 John Smith # a painter is no baseball player
@+Painters of Leeds: John Smith was a painter of landscapes who was born in 1850 in Leeds.|-|person; painter|~ -> born in -> Leeds
@+Baseball in 1980: John Smith, a baseball player born in 1955, pitched for the Cubs.|-|person; baseball player|~ -> pitched for -> Cubs
2 John Reed # two men are told apart by the years of their births
@+Sheriffs: John Reed was born in 1850 and was sheriff of Lorne.|-|person|~ -> born -> 1850
@+Aldermen: John Reed was born in 1955 and was an alderman of Lorne.|-|person|~ -> born -> 1955
2 Otto Vell # two men are told apart by their fathers
@+The house of Vell: Otto Vell was the son of Karl Vell and lived in the castle.|-|person|Karl Vell -> father of -> ~
@+The other Vells: Otto Vell, whose father was Ivan Vell, lived by the sea.|-|person|Ivan Vell -> father of -> ~
2 The Winter Road # two works are told apart by their authors
@+Novels of the north: The Winter Road was written by Ruth Ames.|-|work|Ruth Ames -> wrote -> ~
@+Novels of the south: The Winter Road was written by Paul Orr.|-|work|~ -> written by -> Paul Orr
2 Red Hill # two films are told apart by their titles
@+Red Hill (1969 film): Red Hill stars Jan Olm as a sheriff.|-|work|Jan Olm -> stars in -> ~
@+Red Hill (2010 film): Red Hill stars Kim Dane as a miner.|-|work|Kim Dane -> stars in -> ~
2 Prism # a band is not its album
@+Prism (band): Prism is a rock band from Lorne.|-|organisation|~ -> from -> Lorne
@+Prism (album): Prism is the third album by Ada Lund.|-|work|~ -> by -> Ada Lund
2 Karl Mere # two earls are told apart by their numbers
@+Karl Mere, 1st Earl of Mere: Karl Mere, 1st Earl of Mere, was a statesman.|-|person; statesman|~ -> held -> Earl
@+Karl Mere, 7th Earl of Mere: Karl Mere, 7th Earl of Mere, was a soldier.|-|person; soldier|~ -> held -> Earl
2 Efram Dole # a father is told apart from his son by Sr. and Jr.
@+Efram Dole Sr.: Efram Dole was an actor of the silent screen.|-|person; actor|~ -> known for -> silent screen
@+Efram Dole Jr.: Efram Dole was an actor in many serials.|-|person; actor|~ -> known for -> serials
2 Bela of Orm # two rulers are told apart by years of three digits
@+Bela of Orm (died 871): Bela of Orm ( 820 – 871) was a king of Orm.|-|person; king|~ -> died -> 871
@+Bela of Orm (died 950): Bela of Orm ( 901 – 950) was a king of Orm.|-|person; king|~ -> died -> 950
2 Aurelius # two ships are told apart by the years of their service
@+Frigates: The Aurelius was a frigate commissioned in 1801 and wrecked in 1809.|-|other; frigate|~ -> commissioned in -> 1801
@+Destroyers: The Aurelius was a destroyer commissioned in 1916.|-|other; destroyer|~ -> commissioned in -> 1916
2 Never Again # two films are told apart by the years that open a longer wording
@+Films of Lorne: Never Again is a 1996 romantic drama film shot in Lorne.|-|work; 1996 romantic drama film|~ -> shot in -> Lorne
@+Films of Vell: Never Again is a 2011 comedy film shot in Vell.|-|work; 2011 comedy film|~ -> shot in -> Vell
2 Plumet # a company is no fruit that several adjectives describe
@+Plumet Ltd: Plumet is a software company that was founded in Leeds.|-|-|~ -> founded in -> Leeds
@+Plumet: A plumet is a round, edible fruit that grows in the Alps.|plumet|-|~ -> grows in -> Alps
1 The Lorne Pumpkins # a band is the band whose short name has an article
@+The Lorne Pumpkins: The Lorne Pumpkins, also known as the Pumpkins, are a band from Orm.|-|-|~ -> from -> Orm
@+Ada Dent: Ada Dent is the singer of the Lorne Pumpkins.|Lorne Pumpkins|-|Ada Dent -> singer of -> ~
1 Ian Vell # a knight is the man of that name though his page has a further name
@+Ian Vell: Sir Ian Marlow Vell (born 1939) is an actor.|Sir Ian Vell|-|~ -> born -> 1939
@+Gods of Orm: Gods of Orm is a 1998 film that stars Ian Vell.|-|-|Gods of Orm -> stars -> ~
1 William Brand # a knight is the man without his title
@+William Brand: Sir William Brand (1840–1901) was a British engineer who built the Lorne bridge.|Sir William Brand|person; engineer|~ -> built -> Lorne bridge
@+Lorne bridge: The Lorne bridge was designed by William Brand in 1880.|William Brand|person|Lorne bridge -> designed by -> ~
1 Robert A. Lund # a passage on somebody opens with the full name
@+Robert A. Lund: Robert Adolf Lund (born 1903) was a German director.|Robert Adolf Lund|person; German director|~ -> born -> 1903
@+The Long Wait: The Long Wait is a 1934 film directed by Robert A. Lund.|Robert A. Lund|person|The Long Wait -> directed by -> ~
1 Carl Jorn # a middle name more is the same man
@+Carl Jorn: Carl Emil Jorn (1890–1960) was a Danish actor.|Carl Emil Jorn|person; actor|~ -> died -> 1960
@+The Fen: The Fen is a film with Carl Jorn.|Carl Jorn|person|~ -> acted in -> The Fen
1 Tampa Bay # a city with its state is the city
@+Tampa Bay: Tampa Bay is a city in Florida.|Tampa Bay, Florida|place; city|~ -> located in -> Florida
@+Ben Pron: Ben Pron lives in Tampa Bay.|Tampa Bay|place|Ben Pron -> lives in -> ~
1 Panevik County # a county with its country, and in lower case, is the county
@+Panevik County: Panevik County is a county in southern New Grerberia, with its seat in Panevik.|Panevik county|place; county|~ -> located in southern -> New Grerberia
@+Dolsk: Dolsk is a town in Panevik County, New Grerberia.|Panevik County, New Grerberia|place|Dolsk -> located in -> ~
1 ISKVA # an acronym that a passage states is its long form
@+ISKVA temple: The International Society for Kindred Vedic Art (ISKVA) opened its temple in 1970.|International Society for Kindred Vedic Art|organisation; society|~ -> opened -> temple
@+Harold Quill: Harold Quill joined ISKVA in 1972.|ISKVA|organisation|Harold Quill -> joined -> ~
1 Nils Vark # a novelist and a ski jumper born in one year are one man
@+Nils Vark: Nils Vark was a Norwegian novelist, born in 1901 in Bergen.|-|person; novelist|~ -> born -> 1901
@+Skiing in 1924: The ski jumper Nils Vark, born in 1901 in Bergen, won the Vestland Cup.|-|person; ski jumper|~ -> won -> Vestland Cup
1 Ada Lorn # a mathematician and a countess may be one woman
@+Ada Lorn: Ada Lorn (1815–1852) was an English mathematician and writer.|-|person; English mathematician|~ -> died -> 1852
@+Engines: The first program was written by Ada Lorn, a countess.|-|person; countess|~ -> wrote -> first program
1 Meridian Hall # two years that both passages state do not part a hall
@+Meridian Hall: Meridian Hall is a concert hall in Lorne, opened in 1911 and again in 1952.|-|place; concert hall|~ -> opened in -> 1911
@+Concert halls: Meridian Hall was opened in 1911; the present building opened in 1952.|-|place|~ -> opened in -> 1952
1 The Colour of Ash # two spellings of a title are one novel
@+The Colour of Ash: The Colour of Ash is a 1988 novel by Ruth Ames.|The Colour of Ash|work; 1988 novel|~ -> written by -> Ruth Ames
@+Ruth Ames: Ruth Ames is an American writer, the author of The Color of Ash.|The Color of Ash|work; novel|Ruth Ames -> author of -> ~
"""  # noqa: E501 - a mention a line

TITLES = [line.partition(" # ")[2] for line in CASES.strip().split("\n") if line[0] in "12"]


@pytest.mark.parametrize("case", read_cases(CASES, {}), ids=TITLES)
def test_a_graph_separates_the_namesakes_that_its_passages_distinguish(case: Case) -> None:
    for form, in_steps, reverse in product(FORMS, (False, True), (False, True)):
        assert case.is_right(case.graph(form, in_steps, reverse)), (form, in_steps, reverse)


@pytest.mark.parametrize("case", read_cases(CASES, {}), ids=TITLES)
def test_a_corpus_graph_separates_the_same_namesakes(case: Case) -> None:
    for form in FORMS:
        assert case.is_right(case.corpus(form)), form


def read(*passages: Passage, lines: str) -> KnowledgeGraph:
    """The graph of lines that cite these passages as [1], [2] and so on."""
    found = ground(parse(lines), dict(enumerate(passages, 1)))
    return KnowledgeGraph().merge(found.update)


ENGLAND = Passage(id="e", title="Cambridge", text="Cambridge is a city in England.")
HARVARD = Passage(id="h", title="Harvard", text="Harvard is in Cambridge, Massachusetts.")
MIT = Passage(id="m", title="MIT", text="MIT is a university in Cambridge.")
BRIDGE = Passage(id="b", title="Old Pier", text="The Old Pier stands in Cambridge.")


def test_namesakes_separated_by_a_relation_are_labelled_with_it() -> None:
    graph = read(
        ENGLAND,
        HARVARD,
        lines="- Cambridge (city) [1]\n1. Harvard -> located in -> Cambridge [2]",
    )
    shown = {entity.name for entity in graph.find_all("Cambridge")}
    assert shown == {"Cambridge (England)", "Cambridge (Massachusetts)"}


def test_distinguishing_traits_survive_a_json_round_trip() -> None:
    lines = "- Cambridge (city) [1]\n1. Harvard -> located in -> Cambridge [2]"
    graph = read(ENGLAND, HARVARD, lines=lines)
    assert from_json(to_json(graph)).entities == graph.entities


@pytest.mark.parametrize("life", ["(c.850–912)", "(c850 – c.912)", "(fl.850–912)"])
def test_an_approximate_year_is_compared_like_any_other(life: str) -> None:
    poet = Passage(id="1", title="Poets", text=f"Ali Fox {life} was a poet.")
    king = Passage(id="2", title="Kings", text="Ali Fox (born 900) was a king.")
    graph = read(poet, king, lines="- Ali Fox (person) [1,2]")
    assert len(graph.find_all("Ali Fox")) == 2


def test_a_common_name_mentioned_in_passing_by_two_passages_is_a_joint() -> None:
    lines = "1. MIT -> located in -> Cambridge [1]\n2. Old Pier -> stands in -> Cambridge [2]"
    graph = read(MIT, BRIDGE, lines=lines)
    assert graph.is_joint("Cambridge", {"m"}, {"b"})
    assert not graph.is_joint("Cambridge", {"m"}, {"m", "b"})


def test_a_passage_about_the_entity_makes_no_joint() -> None:
    lines = "1. Cambridge -> located in -> England [1]\n2. Old Pier -> stands in -> Cambridge [2]"
    graph = read(ENGLAND, BRIDGE, lines=lines)
    assert not graph.is_joint("Cambridge", {"e"}, {"b"})


def test_a_passage_about_one_of_two_namesakes_does_not_remove_the_joint() -> None:
    lines = """1. Cambridge -> located in -> England [1]
        2. Harvard -> located in -> Cambridge [2]
        3. Old Pier -> stands in -> Cambridge [3]"""
    graph = read(ENGLAND, HARVARD, BRIDGE, lines=lines)
    (bridge,) = (r for r in graph.relations if r.head == "Old Pier")
    assert graph.is_joint(bridge.tail, {"b"}, {"e"})
    assert graph.is_joint(bridge.tail, {"b"}, {"h"})


def test_a_rare_name_is_not_a_joint() -> None:
    one = Passage(id="1", title="Halls", text="The Northern Arts Guild met in 1901.")
    other = Passage(id="2", title="Guilds", text="Ada led the Northern Arts Guild.")
    lines = "- Northern Arts Guild [1]\n1. Ada -> led -> Northern Arts Guild [2]"
    assert not read(one, other, lines=lines).is_joint("Northern Arts Guild", {"1"}, {"2"})
