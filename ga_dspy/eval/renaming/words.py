"""Words that are never names by themselves: what stays when everything else is renamed.

These lists hold what a name is built with ("University of", "Lake", "Sir"), not names. Common
words need no list: that a word is common shows in the file, where it stands in lower case.
"""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["person", "place", "organisation", "work", "other"]

FUNCTION: Final = frozenset(
    (
        "a an the of in on at by for from to with and or nor but as is was are were be been being "
        "has have had do does did done not no yes if so than then that this these those there "
        "here who whom whose which what when where why how i me my you your he him his she her "
        "hers it its we us our they them their one all any both each few more most other some "
        "such only own same too very can will just should would could may might must shall "
        "about above after again against along among around before behind below beneath beside "
        "between beyond down during into like near off onto out over past per since through "
        "under until up upon via versus vs within without also while because although however "
        "s t d ll re ve m n de del della der den des di da do dos du das la le les los el las lo "
        "van von und y e et al bin ibn ben ab ap af av og i ii iii iv vi vii viii ix xi xii xiii "
        "xiv xv xvi xvii xviii xix xx jr sr mr mrs ms dr etc aka née nee born formerly known ne"
    ).split()
)
NUMBERS: Final = frozenset(
    (
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy "
        "eighty ninety hundred thousand million billion trillion dozen half first second third "
        "fourth fifth sixth seventh eighth ninth tenth eleventh twelfth twentieth once twice "
        "single double triple"
    ).split()
)
CALENDAR: Final = frozenset(
    (
        "january february march april may june july august september october november december "
        "jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday "
        "friday saturday sunday spring summer autumn fall winter christmas easter halloween "
        "thanksgiving ramadan bc ad ce bce"
    ).split()
)
HONORIFICS: Final = frozenset(
    (
        "sir dame lord lady king queen prince princess emperor empress tsar duke duchess earl "
        "count countess baron baroness viscount marquess marquis baronet knight saint st san santa "
        "pope bishop archbishop cardinal father mother brother sister reverend rev rabbi sultan "
        "shah khan emir sheikh caliph mr mrs ms miss dr doctor professor prof president vice "
        "chancellor premier minister prime governor senator mayor captain major colonel general "
        "lieutenant sergeant admiral commander marshal judge justice honourable hon crown dowager "
        "grand elder younger great junior senior consort regent majesty highness"
    ).split()
)
# The faiths, directions and forms of government that texts use as common words with a capital.
KEPT: Final = frozenset(
    (
        "north south east west northern southern eastern western northeast northwest southeast "
        "southwest northeastern northwestern southeastern southwestern central middle upper lower "
        "inner outer new old god bible quran christian christians christianity catholic catholics "
        "catholicism protestant protestants orthodox anglican baptist methodist lutheran "
        "presbyterian evangelical jewish jews jew judaism muslim muslims islam islamic hindu "
        "hindus hinduism buddhist buddhism sikh democratic democrat democrats republican "
        "republicans conservative liberal socialist communist communism nazi marxist federal "
        "constitution congress parliament senate cabinet internet earth sun moon olympic olympics "
        "latin english-language oscar emmy grammy ph"
    ).split()
)
# Head nouns tell the kind of what a first sentence is about ("is an American film director").
PERSON_NOUNS: Final = frozenset(
    (
        "actor actress singer songwriter musician rapper composer conductor guitarist drummer "
        "pianist violinist bassist vocalist dancer choreographer director filmmaker producer "
        "screenwriter writer author novelist poet playwright dramatist journalist editor "
        "broadcaster presenter host comedian model politician lawyer attorney judge jurist "
        "diplomat statesman activist soldier officer general admiral commander footballer "
        "cricketer boxer wrestler golfer cyclist swimmer runner sprinter athlete racer driver "
        "player coach manager pitcher quarterback skater gymnast scientist physicist chemist "
        "biologist mathematician astronomer botanist zoologist economist historian philosopher "
        "theologian engineer inventor architect painter sculptor artist photographer illustrator "
        "cartoonist designer businessman businesswoman entrepreneur executive banker investor "
        "philanthropist physician surgeon psychologist psychiatrist anthropologist archaeologist "
        "sociologist linguist explorer missionary priest monk nun astronaut pilot aviator "
        "nobleman noblewoman monarch ruler person man woman criminal murderer personality "
        "celebrity socialite scholar academic teacher educator lyricist cinematographer heiress "
        "heir son daughter wife husband widow queen king prince princess emperor empress duke "
        "duchess earl baron baroness president governor senator mayor bishop pope saint member "
        "leader chef magician spy merchant trader civil servant translator librettist animator"
    ).split()
)
PLACE_NOUNS: Final = frozenset(
    (
        "city town village hamlet county country state province district municipality region "
        "borough township commune parish suburb neighborhood neighbourhood community settlement "
        "capital territory republic kingdom island islands archipelago peninsula continent river "
        "stream creek lake sea ocean bay gulf strait canal mountain mountains mount hill hills "
        "valley desert forest park peak range plateau coast beach cape falls waterfall volcano "
        "road street avenue highway route square bridge building tower castle palace house hall "
        "stadium arena airport station port harbour harbor dam prison cemetery garden gardens "
        "mansion skyscraper place area locality department prefecture canton oblast raion seat "
        "reservoir glacier cave reef empire duchy principality colony zone ward fort lighthouse "
        "centre center mall mine trail resort hotel cathedral church temple mosque abbey monastery "
        "plantation ranch field isle point bank beach heights"
    ).split()
)
ORGANISATION_NOUNS: Final = frozenset(
    (
        "company corporation university college school institute academy band group duo trio "
        "quartet orchestra choir ensemble club team party organization organisation association "
        "society union agency bureau ministry commission committee council foundation league "
        "conference federation airline airlines bank firm brand label manufacturer retailer chain "
        "publisher studio studios network channel museum library theatre theater hospital army "
        "navy force forces regiment squadron brigade battalion division corps police court order "
        "franchise conglomerate subsidiary enterprise startup gang tribe dynasty guild board trust "
        "fund charity cooperative records entertainment pictures productions industries motors "
        "holdings press house"
    ).split()
)
WORK_NOUNS: Final = frozenset(
    (
        "film movie documentary song album single ep soundtrack book novel novella series serial "
        "sitcom "
        "show drama comedy play musical opera operetta ballet symphony poem story stories essay "
        "episode painting sculpture magazine newspaper journal comic manga anime "
        "miniseries telenovela trilogy anthology video mixtape "
        "ballad tune hymn suite concerto adaptation sequel thriller melodrama western romance "
        "telefilm podcast webcomic compilation anthem autobiography memoir"
    ).split()
)
_BUILDING: Final = frozenset(
    (
        "men women boys girls people world war wars battle siege revolution treaty act award "
        "awards prize medal championship championships cup bowl trophy tournament open "
        "masters games race racing tour festival singles doubles mixed final finals semifinal "
        "football soccer basketball baseball hockey tennis cricket rugby golf boxing wrestling "
        "athletic athletics sport sports national international royal imperial united american "
        "public private state states memorial society science sciences art arts music medical "
        "medicine law business engineering technology studies education research development "
        "health service services security defense defence foreign affairs interior justice "
        "treasury intelligence supreme high house representatives commons lords chamber assembly "
        "office department secretary chief executive officer chairman director head deputy "
        "assistant best supporting actor actress picture original screenplay performance leading "
        "role male female live love radio television tv broadcasting news media communications "
        "company limited ltd inc corp co llc plc gmbh hall fame star list history culture "
        "language languages literature century millennium age era period day night year years "
        "number song songs album albums soundtrack volume vol part chapter book books edition "
        "theme class grade level type model series unit system program project operation mission "
        "flight air space ship ships aircraft train railway railroad line rail metro subway bus "
        "transit electric power energy water oil gas steel iron gold silver diamond red blue "
        "green black white brown grey gray orange pink purple big little small long short tall "
        "young good bad dark light fire home family children child dead death life time "
        "junior senior varsity graduate undergraduate campus student students alumni faculty "
        "metropolitan municipal regional local rural urban greater area statistical census "
        "population presidential elections election campaign government administration policy "
        "rock pop jazz blues country folk hip hop soul metal punk classical dance disco "
        "heavyweight middleweight lightweight welterweight division premier major minor super "
        "senior special free independent general common mutual joint allied armed naval marine "
        "marines cavalry infantry artillery armored armoured guard guards rifle rifles fleet "
        "republic kingdom empire commonwealth confederation nation nations "
        "institution laboratory observatory center centre complex building towers gate market "
        "street road avenue boulevard lane drive way court plaza green land lands"
    ).split()
)
_HEADS: Final = PERSON_NOUNS | PLACE_NOUNS | ORGANISATION_NOUNS | WORK_NOUNS
STRUCTURE: Final = _HEADS | {f"{noun}s" for noun in _HEADS} | _BUILDING | HONORIFICS | KEPT
STAYING: Final = (FUNCTION | NUMBERS | CALENDAR | STRUCTURE) - {"american", "united"}

# Structure words that are surnames just as well, behind a given name.
SURNAMES: Final = frozenset(
    (
        "banks baron bay best big bishop black blue bridges brown bush castle chambers church "
        "court day duke earl fields fort forest french garden gates good gray great green grey "
        "hall head heights hill house judge king knight lake lane little long love major "
        "marshal masters mayor monk north palace park parks pope price prince rivers road rose "
        "short silver singer small south star stone street strong sun temple tower towers tune "
        "ward waters west white wood woods young noble senior gold fox may march june"
    ).split()
)

GENERIC_ACRONYMS: Final = frozenset(
    (
        "TV DVD CD EP LP DJ MC VHS HD PC IT ID CEO CFO COO CTO MBA MD BA BS BSC MA MSC MP MPS MVP "
        "DNA RNA HIV AIDS IQ GDP VIP FM AM PM UHF VHF RPM USB GPS AC DC BC AD CE BCE OK RB SUV CIA "
        "WWI WWII KM MM CM KG MPH UTC GMT EST PST CST LGBT LGBTQ DIY ATM FAQ PDF HTML API CPU RAM"
    ).split()
) - {"CIA", "DC"}

# Irregular demonyms: the words of a line share a stem, so that the relation survives. Regular
# ones (Austria, Austrian) are told by their endings.
FAMILIES: Final = tuple(
    tuple(line.split())
    for line in (
        "america american united",
        "britain british briton",
        "england english englishman",
        "france french frenchman",
        "spain spanish spaniard",
        "wales welsh",
        "ireland irish irishman",
        "scotland scottish scots",
        "netherlands dutch",
        "holland hollander",
        "denmark danish dane",
        "sweden swedish swede",
        "norway norwegian",
        "finland finnish finn",
        "poland polish pole",
        "germany german",
        "greece greek",
        "turkey turkish turk",
        "switzerland swiss",
        "portugal portuguese",
        "thailand thai",
        "philippines filipino philippine",
        "iceland icelandic",
        "argentina argentine argentinian",
        "cyprus cypriot",
        "europe european",
        "canada canadian",
        "italy italian",
        "hungary hungarian",
        "china chinese",
        "peru peruvian",
        "congo congolese",
        "afghanistan afghan",
        "pakistan pakistani",
        "mexico mexican",
        "rome roman",
        "flanders flemish",
        "serbia serbian serb",
        "croatia croatian croat",
        "bavaria bavarian",
        "prussia prussian",
        "paris parisian",
        "venice venetian",
        "naples neapolitan",
        "burma burmese",
        "belgium belgian",
        "chile chilean",
        "lebanon lebanese",
    )
)
FAMILY_ENDINGS: Final = ("ia", "ian", "ish")
