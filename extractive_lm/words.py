"""Closed word lists, and small rules that tell verbs, prepositions and noun phrases apart.

The lists are short on purpose and hold only words of the language, nothing from any data set. There
is no tagger: a verb is a word of the list, or one that ends like a past form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _names(text: str) -> frozenset[str]:
    return frozenset(" ".join(name.split()) for name in text.split(","))


STOPWORDS = _words("""
a an the and or but nor if then than so as of at by for with without about against between into
through during before after above below to from up down in out on off over under again further
once here there when where why how all any both each few more most other some such no not only
own same too very can will just should now is am are was were be been being have has had having
do does did doing would could may might must shall i me my we our you your he him his she her hers
it its they them their theirs what which who whom whose this that these those 's ’s s t also
upon within among along while because until since per via
""")
ARTICLES = _words("a an the")
COPULAS = _words("is was are were")
WH_WORDS = _words("who whom whose what which when where how why")
AUXILIARIES = _words("is are was were do does did has have had can could will would should")
MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july august september october november "
        "december".split(),
        start=1,
    )
}
NAME_CONNECTORS = _words(
    "of the de da del della di du la le les el al van von der den for in & - ’ ' . to on a at"
)
NUMBER_VALUES = {
    word: value
    for value, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen twenty".split(),
        start=1,
    )
} | {"once": 1, "twice": 2, "thrice": 3, "thirty": 30, "forty": 40, "fifty": 50, "hundred": 100}
SCALES = {"hundred": 100.0, "thousand": 1e3, "million": 1e6, "billion": 1e9}
NUMBER_WORDS = (
    NUMBER_VALUES.keys() | SCALES.keys() | _words("sixty seventy eighty ninety dozen half")
)

_NOUNS = {
    "person": """
person man woman boy girl actor actress singer musician rapper songwriter composer writer author
novelist poet playwright journalist director filmmaker producer screenwriter cinematographer
photographer painter artist sculptor architect politician president minister senator governor mayor
king queen prince princess emperor duke earl baron lord lady knight general admiral officer soldier
captain commander player footballer midfielder striker goalkeeper quarterback boxer wrestler golfer
racer driver cyclist swimmer athlete coach manager businessman businesswoman entrepreneur
philanthropist scientist physicist chemist mathematician biologist engineer inventor economist
philosopher historian theologian lawyer judge attorney physician doctor nurse teacher professor
priest bishop pope saint guitarist drummer bassist pianist keyboardist vocalist violinist comedian
comedienne host presenter model dancer choreographer character hero villain founder co-founder owner
ceo chairman leader member father mother son daughter brother sister wife husband spouse uncle aunt
cousin nephew niece grandfather grandmother child parent winner champion astronaut explorer aviator
pilot critic editor publisher rider lyricist dj comic cartoonist animator designer chef spy
executioner killer murderer criminal activist scholar linguist star opponent contestant referee
patriot aristocrat nobleman statesman diplomat ambassador judge player's secretary creator developer
performer narrator successor predecessor celebrity soprano tenor conductor
""",
    "date": "year date day month decade century time era period season age birthday birthdate",
    "number": """
number population amount percentage percent total height length size distance speed cost price
count rank elevation depth weight many much census duration age capacity
""",
    "place": """
place city town village country nation state province county district region continent island
location area municipality borough neighborhood neighbourhood suburb capital river lake mountain
sea ocean bay valley park airport stadium arena venue street road highway territory peninsula
desert coast port harbor harbour parish prefecture kingdom empire planet castle palace building
birthplace hometown site campus metropolis commune community department zone
""",
    "group": """
company band group team club university college school organization organisation corporation firm
label studio network channel station publisher party league association agency institution
institute department army force airline manufacturer brand newspaper magazine museum hospital
church orchestra committee council government ministry family dynasty tribe conglomerate
chain franchise duo trio quartet subsidiary conference division bank foundation union regiment
military squad federation society charity distributor academy house store
""",
    "work": """
film movie song album book novel series show sitcom play musical opera poem game magazine comic
soundtrack single episode drama comedy documentary painting sculpture manga anime novella story
trilogy franchise program programme tv track ep thriller adaptation anthology newspaper journal
journals sequel
""",
    "nationality": "nationality citizenship language ethnicity descent ancestry religion",
    "role": """
profession occupation job career position role genre type kind style field sport instrument nickname
name title award medal prize honor honour acronym abbreviation initials term word color colour
product products activity subject topic industry species genus breed machine animal plant food
drink beverage currency law treaty act clause event war battle festival religion disease cause
""",
}
SUBJECT_TYPES = ("person", "group", "work", "place")
_TYPE_OF_NOUN = {noun: kind for kind, nouns in reversed(_NOUNS.items()) for noun in nouns.split()}
GROUP_ENDINGS = _words("""
university college school company inc corporation corp ltd records band party league association
society institute institution museum church hospital bank foundation group agency airlines airways
studios studio entertainment productions pictures press publishing times orchestra army navy
regiment club team council committee department ministry bureau federation union conference network
channel radio television fc f.c. united city
""")
PLACE_ENDINGS = _words("""
county city river lake island islands state province district park airport stadium arena street
road avenue mountain mountains valley bay beach town village castle palace kingdom republic ocean
sea peninsula creek hill hills center centre
""")
PERSON_TITLES = _words("""
sir mr mrs ms dr president king queen prince princess duke earl baron lord lady captain general
colonel major admiral senator governor saint st pope emperor professor judge mr. mrs. ms. dr. st.
""")
FIRST_NAMES = _words("""
john james robert michael william david richard joseph thomas charles christopher daniel matthew
anthony mark donald steven paul andrew joshua kenneth kevin brian george edward ronald timothy jason
jeffrey ryan jacob gary nicholas eric jonathan stephen larry justin scott brandon benjamin samuel
gregory frank alexander raymond patrick jack dennis jerry tyler aaron jose adam henry nathan douglas
zachary peter kyle walter ethan jeremy harold carl keith roger gerald christian terry sean arthur
austin noah lawrence jesse joe bryan billy jordan albert dylan bruce willie gabriel alan juan logan
wayne ralph roy eugene randy vincent russell louis philip bobby johnny bradley mary patricia
jennifer linda elizabeth barbara susan jessica sarah karen lisa nancy betty sandra margaret ashley
kimberly emily donna michelle carol amanda melissa deborah stephanie dorothy rebecca sharon laura
cynthia amy kathleen angela shirley brenda emma anna pamela nicole samantha katherine christine
helen debra rachel carolyn janet maria catherine heather diane olivia julie joyce victoria ruth
virginia lauren kelly christina joan evelyn judith andrea hannah megan cheryl jacqueline martha
madison teresa gloria sara janice ann kathryn abigail sophia frances jean alice judy isabella julia
grace amber denise danielle marilyn beverly charlotte natalie theresa diana brittany doris kayla
alexis lori marie jim tom tim bob bill mike dave steve chris matt dan nick ben sam fred ted ray ron
don ken greg jeff stan max leo hugo oscar ivan igor sergei pierre jacques hans karl fritz otto
giovanni giuseppe antonio carlos luis miguel pedro francisco ali mohammed muhammad ahmed omar kumar
raj ravi edgar ernest ian neil colin graham stuart simon martin hugh duncan kate jane rose lucy
ellen anne
""")
NATIONALITIES = _words("""
american british english scottish welsh irish canadian australian french german italian spanish
portuguese dutch belgian swiss austrian swedish norwegian danish finnish icelandic polish czech
slovak hungarian romanian bulgarian greek turkish russian ukrainian serbian croatian slovenian
bosnian albanian estonian latvian lithuanian israeli egyptian moroccan algerian tunisian nigerian
ghanaian kenyan ethiopian somali zimbabwean indian pakistani bangladeshi nepalese iranian persian
iraqi syrian lebanese saudi afghan chinese japanese korean vietnamese thai indonesian malaysian
filipino singaporean taiwanese mexican cuban jamaican colombian venezuelan brazilian argentine
argentinian chilean peruvian bolivian uruguayan paraguayan ecuadorian haitian tongan fijian
kazakh uzbek georgian armenian azerbaijani mongolian tibetan maltese cypriot cambodian burmese
telugu tamil hindi bengali kannada malayalam marathi punjabi arabic hebrew latin gujarati roman
mandarin cantonese prussian soviet yugoslav flemish catalan basque swede dane
""")
COUNTRY_OF = {
    "american": "united states", "british": "united kingdom", "english": "england",
    "scottish": "scotland", "welsh": "wales", "irish": "ireland", "canadian": "canada",
    "australian": "australia", "french": "france", "german": "germany", "italian": "italy",
    "spanish": "spain", "portuguese": "portugal", "dutch": "netherlands", "belgian": "belgium",
    "swiss": "switzerland", "austrian": "austria", "swedish": "sweden", "norwegian": "norway",
    "danish": "denmark", "finnish": "finland", "icelandic": "iceland", "polish": "poland",
    "czech": "czech republic", "slovak": "slovakia", "hungarian": "hungary",
    "romanian": "romania", "bulgarian": "bulgaria", "greek": "greece", "turkish": "turkey",
    "russian": "russia", "ukrainian": "ukraine", "serbian": "serbia", "croatian": "croatia",
    "israeli": "israel", "egyptian": "egypt", "nigerian": "nigeria", "indian": "india",
    "pakistani": "pakistan", "iranian": "iran", "iraqi": "iraq", "chinese": "china",
    "japanese": "japan", "korean": "south korea", "vietnamese": "vietnam", "thai": "thailand",
    "indonesian": "indonesia", "malaysian": "malaysia", "filipino": "philippines",
    "taiwanese": "taiwan", "mexican": "mexico", "cuban": "cuba", "jamaican": "jamaica",
    "colombian": "colombia", "venezuelan": "venezuela", "brazilian": "brazil",
    "argentine": "argentina", "argentinian": "argentina", "chilean": "chile", "peruvian": "peru",
    "new zealander": "new zealand", "south african": "south africa",
}  # fmt: skip
COUNTRIES = frozenset(COUNTRY_OF.values()) | _names("""
usa, u.s., us, uk, america, great britain, britain, soviet union, korea, algeria,
morocco, tunisia, libya, ghana, kenya, ethiopia, somalia, uganda, tanzania, zambia, zimbabwe,
botswana, namibia, angola, mozambique, madagascar, sudan, mali, niger, senegal, cameroon, congo,
rwanda, lebanon, syria, jordan, saudi arabia, yemen, oman, kuwait, qatar, bahrain, afghanistan,
nepal, bhutan, bangladesh, sri lanka, myanmar, burma, cambodia, laos, mongolia, singapore,
hong kong, kazakhstan, uzbekistan, georgia, armenia, azerbaijan, estonia, latvia, lithuania,
belarus, moldova, slovenia, bosnia and herzegovina, montenegro, macedonia, albania, kosovo,
cyprus, malta, luxembourg, monaco, andorra, liechtenstein, yugoslavia, czechoslovakia, prussia,
guatemala, honduras, el salvador, nicaragua, costa rica, panama, haiti, dominican republic,
puerto rico, trinidad and tobago, barbados, bahamas, ecuador, bolivia, paraguay, uruguay,
guyana, fiji, papua new guinea, samoa, tonga
""")
US_STATES = _names("""
alabama, alaska, arizona, arkansas, california, colorado, connecticut, delaware,
florida, georgia, hawaii, idaho, illinois, indiana, iowa, kansas, kentucky, louisiana, maine,
maryland, massachusetts, michigan, minnesota, mississippi, missouri, montana, nebraska, nevada,
new hampshire, new jersey, new mexico, new york, north carolina, north dakota, ohio, oklahoma,
oregon, pennsylvania, rhode island, south carolina, south dakota, tennessee, texas, utah,
vermont, virginia, washington, west virginia, wisconsin, wyoming
""")
COUNTRIES_AND_STATES = COUNTRIES | US_STATES
CONTINENTS = _names(
    "africa, asia, europe, america, antarctica, oceania, australia, north america, south america"
)

_RELATED = """
born birth birthplace birthday native
died death dead killed deathplace
buried burial cemetery interred
wife husband spouse married marriage widow
mother father parent parents son daughter child children
sister brother sibling siblings
founded founder founders established formed founding formation created creator
directed director filmmaker directorial
written writer author wrote novelist novel book penned
composed composer music score songwriter soundtrack
performer performed singer sung sang recorded vocalist
produced producer production
studied graduated attended educated alumnus alma education
film movie
won winner champion victory award awarded
located situated lies based headquartered headquarters
owned owner owns acquired subsidiary parent
hosted host presenter presented
nickname nicknamed dubbed alias
population inhabitants residents census
started began begun debut premiered aired broadcast
released release published publication issued
nationality citizen citizenship country
employer worked works employed
position midfielder striker defender goalkeeper forward
built constructed opened construction
border borders bordering adjacent
show series sitcom television
profession occupation
""".strip()
_LINES = [line.split() for line in _RELATED.splitlines()]
RELATED = {
    word: frozenset(other for line in _LINES if word in line for other in line)
    for line in _LINES
    for word in line
}
"""Words that often state the same relation in a question and in its answer's sentence."""


@lru_cache(maxsize=32768)
def noun_type(noun: str) -> str:
    """What a common noun names: "person", "place", "group", "work", ... or "".

    >>> noun_type("actresses"), noun_type("cities"), noun_type("glacier")
    ('person', 'place', '')
    """
    noun = noun.lower()
    forms = [noun]
    for plural, singular in (("ies", "y"), ("es", ""), ("s", ""), ("men", "man")):
        if noun.endswith(plural):
            forms.append(noun.removesuffix(plural) + singular)
    return next((_TYPE_OF_NOUN[form] for form in forms if form in _TYPE_OF_NOUN), "")


# --- Grammar

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


def relation_phrase(words: Sequence[str]) -> str:
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
    phrase = _without_article([w for w in low[start:] if w not in ADVERBS and not w.isdigit()])
    # What follows the verb or its last preposition goes where it only introduces the name.
    last = max((i for i, word in enumerate(phrase) if word in PREPOSITIONS), default=0)
    rest = phrase[last + 1 :]
    introduces = any(noun_type(w) in SUBJECT_TYPES or w in NATIONALITIES for w in rest)
    if rest and (last or phrase[0] not in BE) and (len(rest) > 3 or introduces):
        phrase = _without_article(phrase[: last + 1])
    if phrase[0] in ("be", "been", "being"):
        phrase = phrase[1:]
    # Of "is a city in and the county seat of", only what governs the name after it.
    joints = [i for i, w in enumerate(phrase[:-1]) if w == "and" and phrase[i + 1] in DETERMINERS]
    if joints and phrase[0] in BE and phrase[-1] in PREPOSITIONS:
        phrase = [phrase[0], *phrase[joints[-1] + 1 :]]
    if len(phrase) > 6:
        # Of "is a small unincorporated mining community in", "is a mining community in".
        if phrase[0] not in BE or phrase[-1] not in PREPOSITIONS:
            return ""
        if PREPOSITIONS & set(phrase[1:-1]):
            return ""
        article = phrase[1:2] if phrase[1] in DETERMINERS else []
        phrase = [phrase[0], *article, *phrase[-3:]]
    return " ".join(word.capitalize() if word in NATIONALITIES else word for word in phrase)


def _without_article(phrase: list[str]) -> list[str]:
    while phrase and (phrase[-1] in DETERMINERS or not phrase[-1][-1].isalnum()):
        phrase = phrase[:-1]
    return phrase
