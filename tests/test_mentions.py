"""Which wordings of a name, number, date or description a text mentions or supports."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.graph import draft_from
from ga_dspy.grounding import ground
from ga_dspy.passage import Passage
from ga_dspy.text import mentions, normalise, sentences, supports_phrase

SPAN = "She lived long (November 5, 1855 – October 20, 1926)."


def each(*pairs: tuple[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("phrase", "text"), pairs)


@each(
    ("October 20, 1926", "She died on 20 October 1926."),
    ("1926-10-20", "She died on October 20, 1926."),
    ("20 Oct. 1926", "She died on October 20th, 1926."),
    ("20th of October 1926", "She died on 1926-10-20."),
    ("20/10/1926", "She died on October 20, 1926."),
    ("October 1926", "She died on 20 October 1926."),
    ("October 20", "She died on October 20, 1926."),
    ("1926", "She died on October 20, 1926."),
    ("November 5, 1855", SPAN),
    ("20 October 1926", SPAN),
    ("1855–1926", SPAN),
    ("5 October 1926", "It ran 5–20 October 1926."),
    ("October 20, 1926", "It ran October 5 – 20, 1926."),
    ("5 October 1926", "It ran from 5 October to 3 November 1926."),
    ("November 1926", "It ran October–November 1926."),
    ("1918", "The war of 1914–18 ended."),
    ("1914–1918", "It lasted from 1914 to 1918."),
    ("from 1914 to 1918", "The war (1914–1918) ended."),
    ("March 27, 2017", "Week 2 March 27, 2017 11.12"),
    ("3 November 1938", "Ann Bell (3 November 193815 December 2010) sang."),
    ("15 December 2010", "Ann Bell (3 November 193815 December 2010) sang."),
    ("1990年5月3日", "She was born on May 3, 1990."),
    ("1990年5月3日", "彼女は1990年5月3日に生まれた。"),
    ("Monday, May 3, 1990", "She was born on 3 May 1990."),
    ("October 20, 1926", "Sie starb am 20. Oktober 1926."),
    ("March 1926", "Elle est morte le 12 mars 1926."),
    ("August 3, 1926", "Murió el 3 de agosto de 1926."),
)
def test_a_date_is_found_in_any_format(phrase: str, text: str) -> None:
    assert mentions(phrase, text)


@each(
    ("October 5, 1855", SPAN),
    ("October 1855", SPAN),
    ("November 1926", SPAN),
    ("20 November", SPAN),
    ("15 May 2002", "She lived long (15 May 1913 – 27 October 2002)."),
    ("October 20, 1926", "She died in October 1926."),
    ("October 1926", "She died in 1926."),
    ("20", "She died on October 20, 1926."),
    ("1920", "She sang in the 1920s."),
    ("1926", "It sold 19265 copies."),
    ("March 2020", "Mars 2020 is a rover."),
    ("June 3, 1901", "Er wurde am 3. Juli 1901 geboren."),
)
def test_a_date_with_a_part_from_another_date_is_not_found(phrase: str, text: str) -> None:
    assert mentions(phrase, text) == ()


@each(
    ("1,200,000", "It cost $1.2 million."),
    ("1.2 million", "It sold 1,200,000 copies."),
    ("two million", "It sold 2,000,000 copies."),
    ("48 percent", "Of these 48% are old."),
    ("48%", "Of these 48 per cent are old."),
    ("8 awards", "He won eight awards."),
    ("twenty-five", "He won 25 awards."),
    ("$5 million", "It cost 5 million dollars."),
    ("5.1 million Canadian dollars", "It cost C$5.1 million."),
    ("€50", "It cost 50 euros."),
    ("20th century", "It is of the twentieth century."),
    ("c. 1845", "Painted circa 1845."),
    ("No. 84", "It came in at #84."),
    ("2.5 miles", "It is 2.5 mi wide."),
    ("around 1845", "Painted c. 1845."),
    ("13 km", "It is 13 kilometres long."),
    ("-5 degrees", "It fell to -5 degrees."),
    ("9,200", "Die Stadt hat 9.200 Einwohner."),
    ("1,019,200", "Die Stadt hat 1.019.200 Einwohner."),
    ("19,200", "La ville compte 19\u00a0200 habitants."),
    ("12.5 km", "Sie ist 12,5 km lang."),
    ("€3 million", "Sie machte 3 Millionen Euro Umsatz."),
    ("9200", "人口は9200人である。"),
)
def test_a_number_is_found_by_its_value(phrase: str, text: str) -> None:
    assert mentions(phrase, text)


@each(
    ("500,000", "It sold 1,500,000 copies."),
    ("6 million", "It had 34.6 million viewers."),
    ("34.6", "It had 34.6 million viewers."),
    ("1 million", "It had 1 billion viewers."),
    ("$40", "It cost $3.40 each."),
    ("$50", "It cost €50 each."),
    ("50%", "It had 50 members."),
    ("5 degrees", "It fell to -5 degrees."),
    ("4", "It came 4th."),
    ("First Man", "One Man came."),
    ("3", "It was shown in 3D."),
    ("Friday the 13th", "It is of the 13th century."),
    ("5 km", "Sie ist 12,5 km lang."),
)
def test_a_number_of_another_value_unit_or_scale_is_not_found(phrase: str, text: str) -> None:
    assert mentions(phrase, text) == ()


@each(
    ("Ann Fox", "There Ann Marie Fox sang."),
    ("Ann Fox", "There Ann B. Fox sang."),
    ("Ann Fox", 'There Ann "Foxy Lady" Fox sang.'),
    ("A. M. Fox", "There Ann Marie Fox sang."),
    ("Ann Marie Fox", "There A. M. Fox sang."),
    ("Ann M. Fox", "There Ann Marie Fox sang."),
    ("Ann Marie Fox", "There Ann M. Fox sang."),
    ("J.K. Bell", "There J. K. Bell wrote."),
    ("JK Bell", "There J. K. Bell wrote."),
    ("Bill Fox", "There William Fox sang."),
    ("Ann Yates", "There Ann (née Yates) sang."),
    ("Ann Yates", "There Ann Fox (née Yates) sang."),
    ("Bell Corp.", "There Bell Corporation was founded."),
    ("Bell Motor Corp.", "There Bell Motor was founded."),
    ("Prof. Ann Fox", "There Professor Ann Fox taught."),
    ("Saint Paul", "He lived in St. Paul."),
    ("Ann Fox", "There Ann and Bob Fox sang."),
    ("Bell University", "He taught at the University of Bell."),
    ("University of Bell", "He taught at Bell University."),
    ("Lake Bell", "He swam in Bell Lake."),
    ("Bell Film Festival", "It was shown at the Bell International Film Festival."),
    ("Bell Stadium, Fox Town", "They played at Bell Stadium in Fox Town."),
    ("Bell and Fox", "He worked at Bell & Fox."),
    ("30 NBL teams", "There are 30 National Bell League teams."),
    ("TV host", "She is a television host."),
    ("footballer", "He played football there."),
    ("Mt. Bell", "He climbed Mount Bell."),
    ("Fox United FC", "He played for Fox United."),
    ("Ann Fox Jr.", "There Ann Fox Junior sang."),
    ("Grammy Award", "She won two Grammy Awards."),
    ("Bell Award for Song of the Year", "It won Bell Awards for Play and Song of the Year."),
    ("The 7 Lamps", "She wrote The Seven Lamps."),
    ("Bell Research Centre", "The Bell Research Center asked."),
    ("Flyaway Baby", "It is Fly-Away Baby."),
    ("Fly Away Baby", "It is Flyaway Baby."),
    ("De Bell", "It was Andre DeBell who came."),
    ("World War 2", "He died in World War II."),
    ("Second World War", "He died in World War II."),
    ("Dallas, TX", "He lived in Dallas, Texas."),
    ("National Bell League", "He played in the NBL."),
    ("NBL", "He played in the National Bell League."),
    ("BOD", "The band B.O.D. sang."),
    ("Tromso", "He lived in Tromsø."),
    ("Łódź", "He lived in Lodz."),
    ("Ann Mueller", "There Ann Müller sang."),
    ("Jörg Schön", "There Joerg Schoen sang."),
    ("Ouagadugou", "He lived in Ouagadougou."),
    ("death of Ann Fox", "Ann Fox sang. Since Fox's death he sings."),
    ("government of Eritrea", "Then the Eritrean government fell."),
    ("Eritrean government", "Then the government of Eritrea fell."),
)
def test_a_name_may_be_shortened_abbreviated_or_inflected(phrase: str, text: str) -> None:
    assert mentions(phrase, text)


@each(
    ("Best Actress", "She won the award for Best Actor."),
    ("Best Actor", "He won the award for Best Supporting Actor."),
    ("Best Female Voice", "He won the award for Best Male Voice."),
    ("East German film", "It was a West German film."),
    ("North Korea", "He lived in South Korea."),
    ("Charles III", "Charles II ruled."),
    ("World War I", "He died in World War II."),
    ("Ann H. W. Fox", "There Ann W. Fox sang."),
    ("Ann W. Fox", "There Ann H. W. Fox sang."),
    ("Ann Fox", "There Anna Fox sang."),
    ("Ann Fox", "There Ann, Marie Fox and Bob sang."),
    ("Party of Armenia", "The Party of America won."),
    ("Bangalore University", "He taught at Mangalore University."),
    ("White House", "He owned the White Horse."),
    ("Princes Road", "He lived in Princess Road."),
    ("Prince Carl", "There Princess Carl sang."),
    ("Bell Corporation", "There Bell Martin Corporation was founded."),
    ("University of Bell", "He taught at the University of Fox at Bell."),
    ("Second Avenue", "Of these Two Avenue is best."),
    ("Stephenson", "There Stephen sang."),
    ("Williams", "There William sang."),
    ("United States", "He worked for the American Bell Company."),
)
def test_words_of_a_name_do_not_match_other_words(phrase: str, text: str) -> None:
    assert mentions(phrase, text) == ()


@each(
    ("Paris, Texas", "He studied in Paris. Texas Bell hired him."),
    ("Berlin Wall", "Berlin\nWall painting is old."),
    ("Bell Fox", "It is the Bell (Fox) law."),
    ("Bell Fox", "There were Bell, Fox and Dee."),
)
def test_a_name_does_not_cross_the_end_of_a_sentence_line_or_bracket(
    phrase: str, text: str
) -> None:
    assert mentions(phrase, text) == ()


@each(
    ("US", "It led us there."),
    ("WHO", "Those known who did."),
    ("IT", "It did it well."),
    ("May", "He may go."),
    ("Rush", "In the rush he fell."),
    ("Turkey", "He ate turkey."),
    ("The Who", "Those who came sang."),
)
def test_a_one_word_name_must_be_capitalised(phrase: str, text: str) -> None:
    assert mentions(phrase, text) == ()


def test_a_common_word_is_found_as_a_title_but_not_at_a_sentence_start() -> None:
    [mention] = mentions("It", "It\nIt is a film. It was made in 1990.")
    assert (mention.start, mention.end) == (0, 2)


def test_case_is_ignored_in_a_lower_case_text_or_phrase() -> None:
    assert mentions("Rush", "the band rush sang")
    assert mentions("rush", "In a rush he fell.")


@each(
    ("Virginia", "He lived in West Virginia."),
    ("Mexico", "He lived in New Mexico."),
    ("York", "He lived in New York."),
    ("Ireland", "He lived in Northern Ireland."),
    ("Francisco", "He lived in San Francisco."),
    ("Republic of the Congo", "He lived in the Democratic Republic of the Congo."),
    ("American", "He is a non-American."),
    ("Nazi", "They were anti-Nazi fighters."),
    ("wife", "There came his ex-wife."),
    ("Phone", "He had an iPhone."),
    ("Donald", "There McDonald sang."),
)
def test_a_part_of_a_longer_name_of_something_else_is_not_a_mention(phrase: str, text: str) -> None:
    assert mentions(phrase, text) == ()


@each(
    ("New York", "He lived in New York City."),
    ("Britain", "He lived in Great Britain."),
    ("Virginia", "He left West Virginia for Virginia."),
)
def test_a_name_within_a_longer_form_of_it_is_found(phrase: str, text: str) -> None:
    assert mentions(phrase, text)


@each(
    ("San Quovaholt", "Founded in 1908San Quovaholt grew."),
    ("1908", "Founded in 1908San Quovaholt grew."),
    ("Burn Ward", "See the filmBurn Ward."),
    ("8701", 'He made "My Way8701" then.'),
)
def test_words_run_together_in_a_dirty_text_are_found(phrase: str, text: str) -> None:
    assert mentions(phrase, text)


@each(
    ("United States", "It is an American company."),
    ("American", "She was born in the United States."),
    ("USA", "She was born in the United States."),
    ("US", "The U.S. Navy came."),
    ("US Navy", "The United States Navy came."),
    ("UK", "They are a British band."),
    ("USSR", "It is a Soviet film."),
    ("Germany", "It is a German film."),
    ("West Germany", "It is a West German film."),
    ("Canada", "He is a Canadian-American drummer."),
    ("India", "He is an Indian Bollywood director."),
    ("Burma", "She lived in Myanmar."),
    ("Fijian army", "The army of Fiji won."),
    ("Fiji team", "The Fijian team won."),
    ("New Zealander", "She is from New Zealand."),
    ("New Zealand", "The New Zealander won."),
    ("Sri Lanka", "The Sri Lankan team won."),
)
def test_a_country_matches_its_adjective_and_its_acronym(phrase: str, text: str) -> None:
    assert mentions(phrase, text)


@each(
    ("北京", "他出生于北京。"),
    ("東京", "東京都は日本の首都である。"),
    ("กรุงเทพ", "เขาเกิดที่กรุงเทพมหานคร"),
    ("서울", "그는 서울에서 태어났다."),
    ("ירושלים", "הוא נולד בירושלים."),
    ("القاهرة", "ولد بالقاهرة عام"),
    ("Москва", "Он родился в Москве."),
    ("Алексей Толстой", "Это роман Алексея Толстого."),
    ("Helsinki", "Hän asui Helsingissä ja työskenteli."),
    ("Budapest", "Budapesten élt, és ott halt meg."),
    ("हिन्दी", "वह हिन्दी बोलता है।"),
)
def test_a_name_is_found_in_other_scripts_and_inflections(phrase: str, text: str) -> None:
    assert mentions(phrase, text)


@each(
    ("東京大学", "京都大学は古い。"),
    ("서울", "그는 부산에서 태어났다."),
    ("Лев Толстой", "Это роман Алексея Толстого."),
)
def test_another_name_in_another_script_is_not_found(phrase: str, text: str) -> None:
    assert mentions(phrase, text) == ()


@given(st.text(max_size=40), st.text(max_size=40))
def test_special_letters_are_normalised_and_mentions_are_valid_spans(one: str, other: str) -> None:
    assert normalise("Tromsø Łódź") == "tromso lodz"
    for mention in mentions(one, f"{other} {one}"):
        assert 0 <= mention.start < mention.end


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("He met J. K. Bell. She left.", 2),
        ("The Ann L. Fox Company and Bell Inc. of Ohio merged. Then it grew.", 2),
        ("He served in the U.S. Navy. Then he left.", 2),
        ("He lives in the U.S. He sings.", 2),
        ("See No. 5 vs. No. 6 in St. Paul. Fine.", 2),
        ("Élan vital. École normale. Москва. Петербург.", 4),
        ("東京。大阪！京都？", 3),
        ("Er kam am 3. Mai. Er blieb.", 2),
        ("वह गया। वह आया।", 2),
        ("هل جاء؟ نعم.", 2),
        ("He won 3.5 points. 4 men came.", 2),
    ],
)
def test_sentences_end_in_every_script_and_never_at_initials(text: str, count: int) -> None:
    assert len(sentences(text)) == count


@pytest.mark.parametrize(
    ("phrase", "text", "supported"),
    [
        ("singer", "She was not a singer.", False),
        ("singer", "She never was a singer, but an actress.", False),
        ("actress", "She never was a singer, but an actress.", True),
        ("singer", "She was not only a singer but an actress.", True),
        ("won a Bell Prize", "She didn't win a Bell Prize.", False),
        ("awarded the Bell Prize in 1964", "He refused the Bell Prize in 1964.", False),
        ("killed his wife", "He was survived by his wife.", False),
        ("never married", "He never married.", True),
        ("American actress", "She is an actress.", False),
        ("seen by 23 viewers", "It was seen by 32 viewers.", False),
        ("opened in May 1901", "It opened on May 3, 1901.", True),
        ("founder of Bell", "Ann founded Bell.", True),
        ("county seat", "It is the county seat.", True),
    ],
)
def test_an_attribute_must_be_stated_and_not_denied(
    phrase: str, text: str, supported: bool
) -> None:
    assert supports_phrase(phrase, text) is supported


CREDITS = (
    "The film was directed by Ann Fox and written by Bob Hall, starring Carl Lee and Dee Moore. "
    "Eve Bell composed the music."
)


@pytest.mark.parametrize(
    ("name", "role", "supported"),
    [
        ("Ann Fox", "director", True),
        ("Ann Fox", "filmmaker", True),
        ("Ann Fox", "actress", False),
        ("Bob Hall", "screenwriter", True),
        ("Carl Lee", "actor", True),
        ("Dee Moore", "actress", True),
        ("Dee Moore", "writer", False),
        ("Eve Bell", "composer", True),
    ],
)
def test_a_role_is_supported_by_the_verb_next_to_the_name(
    name: str, role: str, supported: bool
) -> None:
    assert supports_phrase(role, CREDITS, name) is supported


@pytest.mark.parametrize(
    "piece", ["a ", "A. ", "(", "1,", "x", "Ab", "東", "of the ", '"A ', "1 May "]
)
def test_matching_time_is_linear_in_the_length_of_a_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        begun = time.process_time()
        for phrase in (
            "A of the May Day",
            "John Smith",
            "1 May 1901",
            "NFLX",
            "her father's church",
        ):
            mentions(phrase, text)
        return time.process_time() - begun

    seconds(2_000)
    assert seconds(200_000) < 120 * max(seconds(10_000), 0.01)  # 20 times as long


def test_real_graph_lines_are_accepted_and_false_ones_refused(
    shared: Callable[[str], Path],
) -> None:
    from labelled_lines import check_lines, rates

    shares = {
        rate.kind: rate.share for rate in rates(check_lines(shared("grounding/triples.jsonl")))
    }
    assert shares["as asked"] <= 1
    assert shares["freely worded"] <= 8
    assert shares["all but relations"] <= 15


@pytest.mark.parametrize("file", ["graph_anchor", "graphrag"])
def test_graph_lines_of_a_real_lm_are_all_grounded(
    shared: Callable[[str], Path], file: str
) -> None:
    rows = shared(f"replies/{file}.jsonl").read_text("utf-8").split("\n")
    count = 0
    for row in map(json.loads, filter(None, rows)):
        additions = re.search(r"## additions ## \]\]\n(.*?)(?=\n\[\[ ## |\Z)", row["reply"], re.S)
        prompt = row["prompt"].split("[user]")[-1]
        shown = re.search(r"## passages ## \]\]\n(.*?)(?=\n\[\[ ## )", prompt, re.S)
        if additions and shown:
            found = re.finditer(r"^\[(\d+)\] (.*?)\n(.*?)(?=^\[\d+\] |\Z)", shown[1], re.S | re.M)
            passages = {int(m[1]): Passage(id=m[1], title=m[2], text=m[3].strip()) for m in found}
            draft = draft_from(additions[1])
            grounding = ground(draft, passages)
            types = {(entity.name, entity.type) for entity in grounding.update.entities}
            assert not [d for d in grounding.dropped if d.kind != "attribute"]
            assert {(entity.name, entity.type) for entity in draft.entities} <= types
            count += len(draft.relations)
    assert count > 100
