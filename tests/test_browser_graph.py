"""The page of a corpus graph in a browser: search, neighbourhoods, filters, paths, the keyboard.

`make browser` keeps its pictures in build/browser.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="needs Playwright, of the extra dev")
pytest.importorskip("igraph", reason="needs igraph, of the extra graph")

from playwright.sync_api import Browser, Page, expect
from test_browser_viewer import HOSTILE, browser, page, picture, show
from test_serve import KEY, asked

from ga_dspy import viewer
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import CorpusGraph, GraphIndex, GraphRAG
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.viewer.page import asset, document

assert browser and page  # fixtures of that file
DRAWN = "document.querySelector('.canvas')._cyreg.cy.nodes().map(node => node.data('label'))"


def graph_of(
    *triples: tuple[str, str, str] | tuple[str, str, str, str], **types: str
) -> tuple[CorpusGraph, Index]:
    """A graph with a passage and a file for each relation; types by the first word of a name."""
    records, passages = {}, []
    for n, (head, relation, tail, *time) in enumerate(triples):
        text = f"{head} {relation} {tail}."
        file = {"source": f"file{n}.pdf"}
        passages.append(Passage(id=f"p{n}", title=f"Title {n}", text=text, metadata=file))
        start = len(f"Title {n}\n")
        span = (Evidence(passage=f"p{n}", start=start, end=start + len(text)),)
        stated = Relation(
            head=head, relation=relation, tail=tail, time=(*time, None)[0], evidence=span
        )
        entities = tuple(
            Entity(name=name, type=types.get(name.split()[0], ""), evidence=span)
            for name in (head, tail)
        )
        records[f"p{n}"] = GraphUpdate(entities=entities, relations=(stated,))
    return CorpusGraph.of(records), Index.from_passages(passages, kind="sparse")


CHAIN = (
    ("Ada Lund", "wrote", "Blå", "1921"),
    ("Blå", "is set in", "Oslo"),
    ("Oslo", "lies in", "Norway"),
    ("Ben Moe", "born in", "Oslo", "in 1950"),
    ("Ben Moe", "plays", "Harp"),
    ("Cay Dahl", "plays", "Lute"),
)
TYPES = {"Ada": "person", "Ben": "person", "Cay": "person", "Oslo": "place", "Norway": "place"}


@pytest.fixture
def chain(page: Page, tmp_path: Path) -> Page:
    show(page, tmp_path, viewer.graph_page(*graph_of(*CHAIN, **TYPES)))
    return page


def search(page: Page, text: str) -> None:
    page.get_by_label("Search names and aliases").fill(text)


def drawn(page: Page) -> set[str]:
    return set(page.evaluate(DRAWN))


def panel(page: Page, heading: str) -> Any:
    detail = page.get_by_label("Details")
    expect(detail.get_by_role("heading", level=2)).to_have_text(heading)
    return detail


def test_a_searched_entity_is_drawn_with_its_neighbours_and_evidence(
    chain: Page,
) -> None:
    search(chain, "BLA")  # neither case nor accents matter
    chain.locator(".results a.name").click()
    detail = panel(chain, "Blå")
    assert drawn(chain) == {"Blå", "Ada Lund", "Oslo"}
    expect(chain.get_by_text("2 neighbours within 1 hop of Blå")).to_be_visible()
    expect(detail.locator("blockquote")).to_have_text(
        ["Blå is set in Oslo.", "Ada Lund wrote Blå."]
    )
    expect(detail.locator(".source").first).to_have_text("p1 · Title 1 · file1.pdf")
    detail.get_by_role("button", name="2", exact=True).click()
    assert drawn(chain) == {"Blå", "Ada Lund", "Oslo", "Norway", "Ben Moe"}
    detail.get_by_role("button", name="3", exact=True).click()
    assert "Harp" in drawn(chain) and "Cay Dahl" not in drawn(chain)
    detail.get_by_role("link", name="Oslo", exact=True).click()
    panel(chain, "Oslo")
    chain.go_back()
    panel(chain, "Blå")
    search(chain, "zzz")
    expect(chain.locator(".results")).to_have_text("No entity has this name.")


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("type", "place", {"Oslo", "Norway"}),
        ("relation", "play", {"Ben Moe", "Harp", "Cay Dahl", "Lute"}),
        ("source", "file5", {"Cay Dahl", "Lute"}),
        ("time", "1921", {"Ada Lund", "Blå"}),
        ("time", "1940-1960", {"Ben Moe", "Oslo"}),
        ("time", "1900–1999", {"Ada Lund", "Blå", "Ben Moe", "Oslo"}),
        ("relation", "no such", set()),
    ],
)
def test_a_filter_shows_only_matching_relations(
    chain: Page, name: str, value: str, found: set[str]
) -> None:
    field = chain.get_by_label(name, exact=True)
    field.fill(value)
    assert drawn(chain) == found
    field.fill("")
    assert drawn(chain) == {name for one in CHAIN for name in (one[0], one[2])}


def test_filters_apply_to_neighbours_and_state_how_many_are_hidden(chain: Page) -> None:
    chain.evaluate("location.hash = 'Oslo'")
    detail = panel(chain, "Oslo")
    chain.get_by_label("relation", exact=True).fill("lies in")
    assert drawn(chain) == {"Oslo", "Norway"}
    expect(detail).to_contain_text("2 more do not meet the filters")
    expect(chain.locator("summary")).to_have_text("Filters (1 on)")


def test_the_shortest_path_between_two_entities_is_drawn_and_listed_with_its_evidence(
    chain: Page,
) -> None:
    search(chain, "ada")
    chain.keyboard.press("Enter")
    search(chain, "harp")
    chain.get_by_role("link", name="path from Ada Lund").click()
    detail = panel(chain, "Ada Lund → Harp")
    assert drawn(chain) == {"Ada Lund", "Blå", "Oslo", "Ben Moe", "Harp"}
    expect(detail.locator("li blockquote")).to_have_text(
        [f"{' '.join(CHAIN[n][:3])}." for n in (0, 1, 3, 4)]
    )
    chain.get_by_label("relation", exact=True).fill("wrote")
    expect(detail).to_contain_text("that nothing connects under these filters")
    chain.get_by_label("relation", exact=True).fill("")
    chain.evaluate("location.hash = encodeURIComponent('Ada Lund') + '/Lute'")
    expect(detail).to_contain_text("2 nodes that nothing connects")


def test_a_shared_date_does_not_connect_entities(page: Page, tmp_path: Path) -> None:
    graph = graph_of(("Ada", "born in", "1921"), ("Ben", "died in", "1921"), ("Ben", "met", "Eva"))
    show(page, tmp_path, viewer.graph_page(*graph))
    page.evaluate("location.hash = 'Ada/Eva'")
    expect(panel(page, "Ada → Eva")).to_contain_text("nothing connects")
    page.evaluate("location.hash = 'Ada/1921'")
    expect(panel(page, "Ada → 1921").locator("blockquote")).to_have_text("Ada born in 1921.")


def test_all_shortest_paths_are_listed_step_by_step(page: Page, tmp_path: Path) -> None:
    graph = graph_of(
        ("A", "r1", "B"), ("A", "r2", "C"), ("D", "r3", "B"), ("C", "r4", "D"),
        ("A", "r5", "E"), ("E", "r6", "F"), ("F", "r7", "D"),
    )  # fmt: skip
    show(page, tmp_path, viewer.graph_page(*graph))
    page.evaluate("location.hash = 'A/D'")
    steps = panel(page, "A → D").locator("ol > li")
    expect(steps).to_have_count(2)
    expect(steps.nth(0).locator(".relation")).to_have_text(["r1", "r2"])
    expect(steps.nth(1).locator(".relation")).to_have_text(["r3", "r4"])


def test_an_entity_or_relation_of_the_drawing_can_be_clicked(chain: Page) -> None:
    def click(selector: str, place: str) -> None:
        script = """([selector, place]) => {
          const canvas = document.querySelector('.canvas'), box = canvas.getBoundingClientRect();
          const {x, y} = canvas._cyreg.cy.$(selector)[place]();
          return [box.x + x, box.y + y];
        }"""
        chain.mouse.click(*chain.evaluate(script, [selector, place]))

    chain.evaluate("location.hash = 'Oslo'")
    panel(chain, "Oslo")
    click("node[label = 'Norway']", "renderedPosition")
    panel(chain, "Norway")
    click("edge[label = 'born in']", "renderedMidpoint")
    expect(panel(chain, "Relation").locator("blockquote")).to_have_text("Ben Moe born in Oslo.")
    expect(chain.get_by_label("Details")).to_contain_text("time: in 1950")


def test_the_page_can_be_used_with_the_keyboard_only(chain: Page) -> None:
    chain.keyboard.press("/")
    chain.keyboard.type("a")
    chain.keyboard.press("ArrowDown")
    chain.keyboard.press("ArrowDown")
    chain.keyboard.press("ArrowUp")
    first = chain.locator(".results a.name").first
    expect(first).to_be_focused()
    expect(first).to_have_text("Ada Lund · person")
    chain.keyboard.press("Enter")
    panel(chain, "Ada Lund")
    expect(chain.locator(".detail h2")).to_be_focused()
    chain.keyboard.press("Tab")
    chain.keyboard.press("Tab")
    expect(chain.get_by_role("group", name="Hops").get_by_role("button").first).to_be_focused()
    chain.keyboard.press("Tab")
    chain.keyboard.press("Enter")
    expect(chain.get_by_text("2 neighbours within 2 hops of Ada Lund")).to_be_visible()
    expect(chain.get_by_role("button", name="2", exact=True)).to_be_focused()
    chain.keyboard.press("Escape")
    panel(chain, "Most central")


def hub(count: int) -> tuple[CorpusGraph, Index]:
    return graph_of(*((f"Spoke {n}", "belongs to", "Hub") for n in range(count)))


def test_at_most_150_entities_are_drawn_and_the_total_is_shown(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, viewer.graph_page(*hub(200)))
    assert len(drawn(page)) == 40
    search(page, "hub")
    page.keyboard.press("Enter")
    detail = panel(page, "Hub")
    assert len(drawn(page)) == 150
    expect(page.locator(".tools")).to_contain_text(
        "showing 149 of 200 neighbours within 1 hop of Hub"
    )
    expect(detail.locator(".fact")).to_have_count(25)
    detail.get_by_role("button", name="show all 200").first.click()
    expect(detail.locator(".fact")).to_have_count(200)


def test_five_thousand_entities_load_and_are_searched_within_seconds(
    page: Page, tmp_path: Path
) -> None:
    """Prints the times: pytest -s shows them."""
    size, chance = 5_000, random.Random(1)
    entities = [
        {"name": f"Entity {n}", "community": n % 40, "aliases": [f"E{n}"], "passages": [n]}
        for n in range(size)
    ]
    relations = [
        {"head": int(size * chance.random() ** 3), "relation": f"relation {n % 300}",
         "tail": chance.randrange(size), "quotes": [n]}
        for n in range(3 * size)
    ]  # fmt: skip
    data = {
        "entities": entities,
        "relations": relations,
        "communities": [{}] * 40,
        "passages": [{"id": f"p{n}", "title": f"Title {n}", "source": "f"} for n in range(size)],
        "quotes": [[n % size, f"Sentence {n} states a relation. " * 3] for n in range(3 * size)],
    }
    html = document("Large", {"title": "Large", "graph": data}, asset("graph.js"))
    show(page, tmp_path, html)
    panel(page, "Most central")
    times = {"open": page.evaluate("performance.now()")}
    times["search"] = page.evaluate(
        """() => {
          const start = performance.now(), input = document.querySelector('.find input');
          input.value = '7';
          input.dispatchEvent(new Event('input'));
          return performance.now() - start;
        }"""
    )
    times["draw"] = page.evaluate(
        """async () => {
          const start = performance.now();
          document.querySelector('.results a.name').click();
          await new Promise((done) => addEventListener('hashchange', done, {once: true}));
          return performance.now() - start;
        }"""
    )
    panel(page, "Entity 7")
    print(f"{len(html) / 1e6:.1f} MB", {name: f"{ms:.0f} ms" for name, ms in times.items()})
    assert times["open"] < 20_000 and times["search"] < 1_000


def test_communities_are_coloured_and_selectable(chain: Page) -> None:
    legend = chain.locator(".legend a")
    expect(legend).to_have_count(1)  # Cay and the lute are too few for one
    chain.evaluate("location.hash = 'Oslo'")
    panel(chain, "Oslo")
    colour = "document.querySelector('.canvas')._cyreg.cy.$(\"[label = 'Norway']\").classes()"
    assert chain.evaluate(colour) == ["k0"]
    legend.click()
    expect(chain.get_by_label("Details").locator("a.name")).to_have_count(6)
    assert drawn(chain) == {name for one in CHAIN[:5] for name in (one[0], one[2])}


def test_markup_in_names_relations_and_titles_stays_text(page: Page, tmp_path: Path) -> None:
    graph = graph_of((HOSTILE, HOSTILE, "Oslo"), ("Oslo", "lies in", "Norway"))
    show(page, tmp_path, viewer.graph_page(*graph, title=HOSTILE))
    expect(page.locator("h1")).to_have_text(HOSTILE)
    search(page, "script")
    page.locator(".results a.name").click()
    detail = panel(page, HOSTILE)
    expect(detail.locator("blockquote")).to_have_text(f"{HOSTILE} {HOSTILE} Oslo.")
    assert page.locator("img, main b, main script").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 768), ("light", 390)])
def test_no_content_overflows_on_any_screen_size(
    chain: Page, tmp_path: Path, scheme: Any, width: int
) -> None:
    chain.emulate_media(color_scheme=scheme)
    chain.set_viewport_size({"width": width, "height": 844})
    for address in ("", "Oslo", "Norway/Harp", "/0"):
        chain.evaluate("address => { location.hash = address; }", address)
        picture(chain, tmp_path, f"graph-{len(address)}-{scheme}-{width}")
        assert chain.evaluate("document.documentElement.scrollWidth") <= width


def test_the_service_asks_for_a_key_and_shows_the_graph(browser: Browser) -> None:
    graph, index = graph_of(*CHAIN, **TYPES)
    page = browser.new_page()
    corpus = GraphIndex(index, graph)
    with asked(corpus, program=GraphRAG, keys=[KEY.encode()]) as client:
        page.goto(str(client.base_url))
        page.get_by_role("link", name="Explore the graph").click()
        expect(page.get_by_role("alert")).to_contain_text("the API key is missing or unknown")
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Enter")
        panel(page, "Most central")
        assert "Oslo" in drawn(page)
        page.get_by_role("link", name="Ask a question").click()
        expect(page.get_by_label("Question")).to_be_visible()
    page.close()
