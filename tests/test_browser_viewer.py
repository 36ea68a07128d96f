"""The viewer in a browser: what one sees, clicks and types, and what a hostile text cannot do.

`make browser` runs this file alone and keeps its pictures in build/browser.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest

import ga_dspy
from ga_dspy import viewer
from ga_dspy.demo import DEMO_QUESTION, corpus
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.grounding import Dropped
from ga_dspy.programs import Event, watching

pytest.importorskip("playwright", reason="needs Playwright, of the extra dev")

from playwright.sync_api import Browser, Dialog, Locator, Page, Request, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><b>bold</b>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium or Chrome on the path")
    expect.set_options(timeout=15_000)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; whatever it logs, asks for elsewhere or pops up fails the test."""
    faults: list[str] = []

    def asks(request: Request) -> None:
        if not request.url.startswith("file:"):
            faults.append(request.url)

    def pops_up(dialog: Dialog) -> None:
        faults.append(dialog.message)
        dialog.dismiss()

    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(15_000)
    made = context.new_page()
    made.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.on("dialog", pops_up)
    made.on("request", asks)
    yield made
    context.close()
    assert faults == []


@pytest.fixture(scope="module")
def answered() -> tuple[list[Event], dspy.Prediction]:
    events: list[Event] = []
    program = ga_dspy.GraphAnchor(ga_dspy.Index.from_passages(corpus()))
    with watching(events.append), dspy.context(lm=ga_dspy.extractive_lm()):
        return events, program(question=DEMO_QUESTION)


@pytest.fixture(scope="module")
def prediction(answered: tuple[list[Event], dspy.Prediction]) -> dict[str, Any]:
    record: dict[str, Any] = answered[1].to_dict()
    return record


def show(page: Page, folder: Path, html: str) -> None:
    file = folder / "page.html"
    file.write_text(html, "utf-8")
    page.goto(file.as_uri())


def card(page: Page, n: int) -> Locator:
    return page.locator("article.card").nth(n - 1)


def report(prediction: dspy.Prediction, program: str, answers: Sequence[str]) -> Report:
    examples = [
        dspy.Example(id=f"q/{n}", question=f"{DEMO_QUESTION} ({n})", answer="The Hague")
        for n in range(len(answers))
    ]
    made = [dspy.Prediction(**{**prediction.toDict(), "answer": answer}) for answer in answers]
    protocol = Protocol.of(examples, dataset="made", source="made", program=program, lm="none")
    return Report(protocol, tuple(map(Result.from_prediction, examples, made)))


@pytest.fixture
def two_runs(answered: tuple[list[Event], dspy.Prediction]) -> str:
    one = report(answered[1], "first", ["Hague", "Paris", "Hague", "Oslo"])
    other = report(answered[1], "second", ["Hague", "Hague", "Rome", "Oslo"])
    return viewer.run_page(one, other)


def test_every_step_is_shown_with_what_it_read_added_and_judged(
    page: Page, tmp_path: Path, prediction: dict[str, Any]
) -> None:
    show(page, tmp_path, viewer.page(DEMO_QUESTION, prediction))
    expect(page.locator("h1")).to_have_text(DEMO_QUESTION)
    expect(page.locator("article.card")).to_have_count(len(prediction["steps"]) + 1)
    titles = {passage["id"]: passage["title"] for passage in prediction["passages"]}
    for step in prediction["steps"]:
        page.get_by_role("button", name=f"Step {step['number']}", exact=True).click()
        body = card(page, step["number"])
        expect(body.locator(".query")).to_have_text(step["query"])
        expect(body.locator(".body")).to_contain_text(step["reasoning"])
        for id in step["passage_ids"]:
            expect(body.locator(".passage", has_text=titles[id]).first).to_be_visible()
        expect(body.locator(".triple")).to_have_count(len(step["relations"]))
    page.get_by_role("button", name="Answer", exact=True).click()
    for link in prediction["evidence"]:
        expect(page.locator(".open")).to_contain_text(link["quote"])


def test_clicking_a_triple_shows_the_sentence_that_states_it(
    page: Page, tmp_path: Path, prediction: dict[str, Any]
) -> None:
    show(page, tmp_path, viewer.page(DEMO_QUESTION, prediction))
    page.get_by_role("button", name="Step 1", exact=True).click()
    contents = {p["id"]: f"{p['title']}\n{p['text']}" for p in prediction["passages"]}
    for n, relation in enumerate(prediction["steps"][0]["relations"]):
        page.locator(".open .triple").nth(n).click()
        evidence = relation["evidence"][0]
        sentence = contents[evidence["passage"]][evidence["start"] : evidence["end"]]
        expect(page.locator(".detail blockquote")).to_have_text(sentence)
        expect(page.locator(".open mark.chosen").first).to_be_visible()
        assert "".join(page.locator(".open mark.chosen").all_inner_texts()) == sentence


def test_edges_of_the_drawing_and_passages_can_be_clicked(
    page: Page, tmp_path: Path, prediction: dict[str, Any]
) -> None:
    show(page, tmp_path, viewer.page(DEMO_QUESTION, prediction))
    place = page.evaluate(
        """() => {
          const canvas = document.querySelector('.canvas'), box = canvas.getBoundingClientRect();
          const {x, y} = canvas._cyreg.cy.$('#t0').renderedMidpoint();
          return [box.x + x, box.y + y];
        }"""
    )
    page.mouse.click(*place)
    expect(page.locator(".detail .big")).to_contain_text(
        prediction["graph"]["relations"][0]["tail"]
    )
    page.locator(".detail .chip").first.click()
    first = prediction["passages"][0]
    expect(page.locator(".detail .text")).to_have_text(first["text"])
    stated = [r for r in prediction["graph"]["relations"] if states(first["id"], r)]
    expect(page.locator(".detail .triple")).to_have_count(len(stated))


def states(passage: str, relation: dict[str, Any]) -> bool:
    return any(evidence["passage"] == passage for evidence in relation["evidence"])


def test_the_keyboard_reaches_steps_triples_and_questions(
    page: Page, tmp_path: Path, prediction: dict[str, Any], two_runs: str
) -> None:
    show(page, tmp_path, viewer.page(DEMO_QUESTION, prediction))
    last = len(prediction["steps"]) + 1
    expect(card(page, last)).to_have_class(re.compile("open"))
    for _ in range(last):
        page.keyboard.press("ArrowLeft")
    expect(card(page, 1)).to_have_class(re.compile("open"))
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('triple')"):
            break
    page.keyboard.press("Enter")
    expect(page.locator(".detail blockquote").first).to_be_visible()
    expect(page.locator("button.triple:focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".detail blockquote")).to_have_count(0)

    show(page, tmp_path, two_runs)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(f"{DEMO_QUESTION} (1)")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tabs [aria-pressed=true]")).to_have_text([f"Step {last - 1}"] * 2)
    page.keyboard.press("Escape")
    expect(page.locator("a.row:focus")).to_have_attribute("href", "#q%2F1")


def test_two_runs_are_shown_side_by_side_with_the_questions_that_flipped(
    page: Page, tmp_path: Path, two_runs: str
) -> None:
    show(page, tmp_path, two_runs)
    rows = page.locator("a.row")
    expect(rows).to_have_count(4)
    for name, id in (("flipped to right 1", 1), ("flipped to wrong 1", 2)):
        page.get_by_role("button", name=name).click()
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(f"({id})")
    page.get_by_role("button", name="judged too early 3").click()
    expect(rows).to_have_count(3)
    page.get_by_role("searchbox").fill("(2)")
    rows.click()
    expect(page.locator(".pane > h2")).to_have_text(
        ["first right", re.compile("second judged too early")]
    )
    expect(page.locator(".answer strong")).to_have_text(["Hague", "Rome"])
    expect(page.locator(".canvas canvas").first).to_be_visible()
    page.get_by_role("link", name="all questions").click()
    expect(rows).to_have_count(1)


def test_a_run_shows_what_was_dropped_and_why(
    page: Page, tmp_path: Path, answered: tuple[list[Event], dspy.Prediction]
) -> None:
    lost = Dropped(kind="entity", item="Atlantis", cause="ungrounded", reason="not found in [1]")
    first, *others = answered[1].steps
    changed = {
        **answered[1].toDict(),
        "steps": (first.model_copy(update={"dropped": (lost,) * 21}), *others),
    }
    show(page, tmp_path, viewer.run_page(report(dspy.Prediction(**changed), "run", ["Hague"])))
    page.locator("a.row").click()
    page.get_by_role("button", name="Step 1", exact=True).click()
    expect(card(page, 1)).to_contain_text("21 dropped")
    expect(card(page, 1).locator("s", has_text="Atlantis")).to_have_count(20)
    expect(card(page, 1)).to_contain_text("entity: not found in [1]")
    expect(card(page, 1)).to_contain_text("1 of which the run stores only the number")


def test_markup_in_untrusted_texts_is_shown_as_text(
    page: Page, tmp_path: Path, prediction: dict[str, Any], two_runs: str
) -> None:
    text = json.dumps(prediction).replace("Treasure Island", json.dumps(HOSTILE)[1:-1])
    hostile = {**json.loads(text), "answer": HOSTILE, "verdict": HOSTILE, "lm": HOSTILE}
    show(page, tmp_path, viewer.page(HOSTILE, hostile))
    expect(page.locator("h1")).to_have_text(HOSTILE)
    expect(page.locator(".answer strong")).to_have_text(HOSTILE)
    page.get_by_role("button", name="Step 1", exact=True).click()
    expect(page.locator(".open .passage .text", has_text=HOSTILE).first).to_be_visible()
    page.locator(".open .triple", has_text=HOSTILE).first.click()
    expect(page.locator(".detail .big")).to_contain_text(HOSTILE)
    for made in ("img", "main b:text-is('bold')", "script:has-text('alert')"):
        found = page.locator(made).filter(has_not=page.locator("#ga-data"))
        assert [each for each in found.all() if each.get_attribute("id") != "ga-data"] == []


def test_the_content_security_policy_blocks_every_request(
    browser: Browser, tmp_path: Path, prediction: dict[str, Any]
) -> None:
    page = browser.new_page()
    show(page, tmp_path, viewer.page(DEMO_QUESTION, prediction))
    refused = """async () => {
      const refusals = [];
      addEventListener('securitypolicyviolation',
                       (event) => refusals.push(event.effectiveDirective));
      await fetch('file:///etc/hostname').catch(() => null);
      document.body.append(Object.assign(new Image(), {src: 'file:///x.png'}));
      document.body.append(Object.assign(document.createElement('script'), {textContent: 'x()'}));
      await new Promise((resolve) => setTimeout(resolve, 200));
      return refusals.sort();
    }"""
    assert page.evaluate(refused) == ["connect-src", "img-src", "script-src-elem"]


def test_live_events_draw_the_same_as_the_final_prediction(
    page: Page, tmp_path: Path, answered: tuple[list[Event], dspy.Prediction]
) -> None:
    events, prediction = answered
    show(page, tmp_path, viewer.page(DEMO_QUESTION, prediction.to_dict()))
    whole = page.locator(".list").inner_text()
    page.evaluate("globalThis.live = GaView.mount(document.getElementById('ga'))")
    page.evaluate("question => live.start(question)", DEMO_QUESTION)
    expect(page.locator("article.card")).to_have_count(0)
    seen = []
    for event in events:
        page.evaluate("e => live.event(e)", {"kind": event.kind, "data": dict(event.data)})
        seen.append(
            (event.kind, page.locator("article.card").count(), page.locator(".triple").count())
        )
    steps = len(prediction.steps)
    assert seen[0] == ("search", 1, 0) and seen[2] == ("step", 1, len(events[2].data["relations"]))
    assert seen[-1][1] == steps + 1 and page.locator(".list").inner_text() == whole


def test_spans_count_characters_as_python_does(page: Page, tmp_path: Path) -> None:
    text = "Kai 🦜🦜 lives here. Lea was born in Bern."
    start = len("Birds 🦜\n") + text.index("Lea")
    evidence = [{"passage": "p", "start": start, "end": start + len("Lea was born in Bern.")}]
    relation = {"head": "Lea", "relation": "born in", "tail": "Bern", "evidence": evidence}
    step = {"number": 1, "query": "?", "passage_ids": ["p"], "relations": [relation]}
    passages = [{"id": "p", "title": "Birds 🦜", "text": text}]
    graph = {"entities": [], "relations": [relation]}
    found = {"answer": "Bern", "passages": passages, "graph": graph, "steps": [step]}
    show(page, tmp_path, viewer.page("?", found))
    page.keyboard.press("ArrowLeft")
    expect(page.locator("mark")).to_have_text("Lea was born in Bern.")
    page.locator(".triple").click()
    expect(page.locator(".detail blockquote")).to_have_text("Lea was born in Bern.")


def test_three_hundred_entities_are_drawn_within_seconds(page: Page, tmp_path: Path) -> None:
    names = ["t0", *(f"Entity number {n}" for n in range(1, 300))]  # a name like a triple's id
    relations = [
        {"head": names[n], "relation": "stands beside", "tail": names[n * 7 % max(n, 1)]}
        for n in range(1, 300)
    ]
    graph = {"entities": [{"name": name} for name in names], "relations": relations}
    step = {"number": 1, "query": "?", **graph}
    show(page, tmp_path, viewer.page("?", {"answer": "", "graph": graph, "steps": [step]}))
    cy = "document.querySelector('.canvas')._cyreg.cy"
    assert page.evaluate(f"{cy}.nodes(':visible').length") == 300
    assert page.evaluate("performance.now()") < 30_000
    picture(page, tmp_path, "many")


def test_the_drawing_highlights_new_items_and_the_final_chain(page: Page, tmp_path: Path) -> None:
    seat = {"head": "Red Lodge", "relation": "is the seat of", "tail": "Carbon County"}
    state = {"head": "Carbon County", "relation": "lies in", "tail": "Montana"}
    miners = {"head": "Red Lodge", "relation": "settled by", "tail": "miners"}
    steps = [
        {"number": 1, "query": "Red Lodge", "relations": [seat, miners]},
        # The graph has since learned that "Carbon" is a county.
        {"number": 2, "query": "Carbon County", "relations": [{**state, "head": "Carbon"}]},
    ]
    county = {"name": "Carbon County", "aliases": ["Carbon"]}
    graph = {"entities": [county], "relations": [seat, miners, state]}
    links = [{**each, "passage_id": "p", "title": "", "quote": "?"} for each in (seat, state)]
    show(
        page, tmp_path,
        viewer.page("?", {"answer": "Montana", "graph": graph, "steps": steps, "evidence": links}),
    )  # fmt: skip

    def seen(kind: str) -> set[str]:
        drawn = f"document.querySelector('.canvas')._cyreg.cy.$('{kind}').map(e => e.data('label'))"
        return set(page.evaluate(drawn))

    assert seen("edge.chain") == {"is the seat of", "lies in"} and seen("edge.faint") == {
        "settled by"
    }
    page.keyboard.press("ArrowLeft")
    assert seen(".new") == {"lies in", "Montana"} and seen(".later") == set()
    page.keyboard.press("ArrowLeft")
    assert seen(".later") == {"lies in", "Montana"}
    first = {"Red Lodge", "Carbon County", "miners", "is the seat of", "settled by"}
    assert seen(".new") == first == seen(":visible")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 1400), ("light", 390)])
def test_no_content_overflows_in_light_or_dark_mode_or_on_a_phone(
    page: Page, tmp_path: Path, prediction: dict[str, Any], two_runs: str, scheme: Any, width: int
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for name, html in (("demo", viewer.page(DEMO_QUESTION, prediction)), ("runs", two_runs)):
        show(page, tmp_path, html)
        picture(page, tmp_path, f"{name}-{scheme}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("a.row").first.click()
    picture(page, tmp_path, f"beside-{scheme}-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


MARKED = """# Register
**Ilse Brandt** built the *Ora*, see `__init__` and snake_case_name: 2**3.

| Ship | Year |
|------|-----:|
| **Ora** | 1901 |
"""


def test_markdown_is_shown_as_plain_text_and_quotes_are_located_correctly(
    page: Page, tmp_path: Path
) -> None:
    quote = "**Ilse Brandt** built the *Ora*"
    start = MARKED.index(quote)
    span = {"passage": "p", "start": start, "end": start + len(quote)}
    relation = {"head": "Ilse Brandt", "relation": "built", "tail": "Ora", "evidence": [span]}
    row = "| **Ora** | 1901 |"
    link = {"head": "", "relation": "", "tail": "", "quote": row, "passage_id": "p", "title": ""}
    shown = {
        "answer": "1901", "supported": "quoted", "verdict": "answered", "failures": [],
        "evidence": [link], "graph": {"entities": [], "relations": [relation]},
        "passages": [{"id": "p", "title": "", "text": MARKED, "metadata": {}}],
        "steps": [{"number": 1, "query": "Ora?", "passage_ids": ["p"], "retrieved": ["p"],
                   "relations": [relation], "entities": [], "judgement": "sufficient"}],
    }  # fmt: skip
    show(page, tmp_path, viewer.page("When?", shown))
    assert page.locator(".open blockquote").inner_text() == "Ora · 1901"
    page.locator("article.card .top").first.click()
    lines = [line.strip() for line in page.locator(".open .text").inner_text().splitlines()]
    told = "Ilse Brandt built the Ora, see __init__ and snake_case_name: 2**3."
    assert lines == ["Register", told, "", "Ship · Year", "Ora · 1901"]
    assert page.locator(".open mark.fact").all_inner_texts() == ["Ilse Brandt built the Ora"]


def test_on_a_phone_the_evidence_comes_first_and_the_graph_on_demand(
    page: Page, tmp_path: Path, prediction: dict[str, Any], two_runs: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, tmp_path, viewer.page(DEMO_QUESTION, prediction))
    places = [card.bounding_box() for card in page.locator("article.card").all()]
    tops = [place["y"] for place in places if place]
    assert min(tops) == tops[-1] and "Answer" in page.locator("article.card").last.inner_text()
    graph = page.locator(".map")
    expect(graph).to_be_hidden()
    page.get_by_role("button", name="Graph", exact=True).click()
    expect(graph).to_be_visible()
    page.wait_for_timeout(100)
    assert page.evaluate("document.querySelector('.canvas')._cyreg.cy.zoom()") >= 0.7
    page.get_by_role("button", name="Graph", exact=True).click()
    expect(graph).to_be_hidden()
    show(page, tmp_path, two_runs)
    before = "getComputedStyle(document.querySelector('.verdict'), '::before').content"
    assert "first" in page.evaluate(before)


def picture(page: Page, folder: Path, name: str) -> None:
    page.wait_for_timeout(100)
    page.screenshot(path=Path(os.environ.get("GA_DSPY_PICTURES", folder)) / f"{name}.png")
