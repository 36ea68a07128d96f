"""The page of the service in a browser: the graph grows as the steps arrive.

`make browser` keeps its pictures in build/browser.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
import pytest

import ga_dspy
from ga_dspy.demo import DEMO_QUESTION, corpus
from ga_dspy.serve import Key
from ga_dspy.testing import ScriptedEngine, scripted_lm

pytest.importorskip("playwright", reason="needs Playwright, of the extra dev")

from playwright.sync_api import Browser, Dialog, Page, expect
from test_browser_viewer import HOSTILE, browser, picture
from test_serve import KEY, asked

assert browser  # a fixture of that file
expect.set_options(timeout=20_000)


class Gated:
    """The engine of the embedded LM behind a gate: each call waits until it is let through."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self._engine = ga_dspy.extractive_lm().engine
        engines = {"engine": ScriptedEngine([]), "async_engine": self}
        self.lm = dspy.LM("ga-dspy/gated", cache=False, num_retries=0, **engines)

    async def complete(self, request: Any) -> Any:
        await asyncio.to_thread(self.gate.acquire)
        return await asyncio.to_thread(self._engine.complete, request)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; whatever it logs or pops up fails the test, as does another host."""
    faults, hosts = list[str](), set[str]()

    def pops_up(dialog: Dialog) -> None:
        faults.append(dialog.message)
        dialog.dismiss()

    made = browser.new_page(viewport={"width": 1280, "height": 800})
    made.set_default_timeout(20_000)
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.on("console", lambda message: faults.append(message.text))
    made.on("dialog", pops_up)
    made.on("request", lambda request: hosts.add(request.url.split("/")[2].split(":")[0]))
    yield made
    made.close()
    assert faults == [] and hosts == {"127.0.0.1"}


def ask(page: Page, question: str) -> None:
    page.get_by_label("Question").fill(question)
    page.keyboard.press("Enter")


@pytest.fixture(scope="module")
def index() -> ga_dspy.Index:
    return ga_dspy.Index.from_passages(corpus())


def test_steps_arrive_one_by_one_and_the_graph_grows(
    page: Page, tmp_path: Path, index: ga_dspy.Index
) -> None:
    gated = Gated()
    with asked(index, gated.lm) as client:
        page.goto(str(client.base_url))
        ask(page, DEMO_QUESTION)
        cards = page.locator("article.card")
        expect(page.locator(".status")).to_contain_text("reading 5 new passages")
        expect(cards).to_have_count(1)
        expect(page.locator(".triple")).to_have_count(0)
        gated.gate.release()
        expect(cards).to_have_count(2)
        drawn = "document.querySelector('.canvas')._cyreg.cy.edges().length"
        first = page.evaluate(drawn)
        assert first > 0
        picture(page, tmp_path, "serve")
        gated.gate.release(10)
        expect(page.locator(".answer strong")).not_to_be_empty()
        assert page.evaluate(drawn) >= first
        page.keyboard.press("ArrowLeft")
        expect(cards.last).not_to_have_class("open")


def test_markup_in_answers_and_passages_is_shown_as_text_on_the_live_page(page: Page) -> None:
    reply = {"additions": "", "reasoning": HOSTILE, "judgement": "sufficient", "answer": HOSTILE,
             "candidate": "", "next_query": "", "verdict": "answered"}  # fmt: skip
    passage = ga_dspy.Passage(id="1", title="Hostile", text=f"The bridge: {HOSTILE}")
    found = ga_dspy.Index.from_passages([passage], kind="sparse")
    with asked(found, scripted_lm(lambda prompt: reply)) as client:
        page.goto(str(client.base_url))
        ask(page, f"What of the bridge {HOSTILE}?")
        expect(page.locator(".answer strong")).to_contain_text("<b>bold</b>")
        page.locator("article.card .top").first.click()
        expect(page.locator(".open .passage .text")).to_contain_text("onerror=alert(2)")
        assert page.locator("img, main b:text-is('bold')").count() == 0


def test_the_page_asks_for_a_key_if_one_is_required(browser: Browser, index: ga_dspy.Index) -> None:
    page = browser.new_page()
    with asked(index, keys=[KEY.encode()]) as client:
        page.goto(str(client.base_url))
        expect(page.get_by_role("alert")).to_have_text("This server asks for an API key.")
        expect(page.get_by_role("button", name="What connects")).to_have_count(0)
        page.get_by_label("API key").fill("a wrong key")
        ask(page, "Who was Huygens?")
        expect(page.get_by_role("alert")).to_have_text("The API key is missing or unknown.")
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Enter")
        expect(page.locator(".answer strong")).not_to_be_empty()
        expect(page.get_by_role("alert")).to_be_empty()
        expect(page.locator("header")).to_contain_text("122 passages")
    page.close()


def test_the_page_describes_its_sources_and_asks_an_example_on_one_click(
    page: Page, index: ga_dspy.Index
) -> None:
    with asked(index) as client:
        page.goto(str(client.base_url))
        expect(page.get_by_label("API key")).to_be_hidden()
        expect(page.get_by_role("heading", level=1)).to_have_text("Ask your documents")
        expect(page.locator("header p")).to_have_text(
            "122 passages · embedded extractive LM, not an LLM"
        )
        examples = page.get_by_role("group", name="Examples").get_by_role("button")
        expect(examples).to_have_count(3)
        first = examples.first.inner_text()
        examples.first.click()
        expect(page.locator(".head h1")).to_have_text(first)
        expect(page.locator(".answer strong")).not_to_be_empty()


def test_an_answer_has_its_own_url_in_the_browser_history(
    page: Page, tmp_path: Path, index: ga_dspy.Index
) -> None:
    with asked(index) as client:
        home = str(client.base_url)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=home)
        page.goto(home)
        past = page.locator("details.history")
        expect(past).to_be_hidden()
        for question in ("Who was Huygens?", f"What is {HOSTILE}?"):
            ask(page, question)
            expect(page.locator(".head h1")).to_have_text(question)
            expect(page.get_by_role("button", name="Copy link")).to_be_visible()
        page.get_by_role("button", name="Copy link").click()
        expect(page.locator(".actions")).to_contain_text("copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == page.url and "#/runs/" in copied
        page.get_by_role("button", name="Wrong").click()
        expect(page.locator(".actions")).to_contain_text("thank you")
        record = page.evaluate("fetch(location.hash.slice(1)).then((reply) => reply.json())")
        assert record["feedback"]["right"] is False
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as HTML").click()
        saved = Path(download.value.path()).read_text()
        assert "connect-src 'none'" in saved and "</script><script>alert" not in saved

        page.reload()
        expect(page.locator(".head h1")).to_have_text(f"What is {HOSTILE}?")
        past.locator("summary").click()
        expect(past.locator("li")).to_have_count(2)
        past.get_by_role("link", name="Who was Huygens?").click()
        expect(page.locator(".head h1")).to_have_text("Who was Huygens?")
        expect(past.locator("li").first).to_contain_text("Who was Huygens?")
        page.go_back()
        expect(page.locator(".head h1")).to_contain_text("What is")
        past.get_by_role("button", name="Clear").click()
        expect(past).to_be_hidden()
        page.get_by_role("link", name="Ask your documents").click()
        expect(page.locator(".hint")).to_be_visible()
        page.reload()
        expect(past).to_be_hidden()


def test_a_link_to_an_expired_answer_says_so(browser: Browser, index: ga_dspy.Index) -> None:
    page = browser.new_page()
    with asked(index) as client:
        page.goto(f"{client.base_url}#/runs/0123")
        expect(page.get_by_role("alert")).to_have_text(
            "There is no such answer, or it is no longer kept."
        )
    page.close()


def test_a_key_that_may_write_adds_and_deletes_documents_on_the_page(
    tmp_path: Path, browser: Browser
) -> None:
    index = ga_dspy.Index.from_passages(corpus()[:3], kind="sparse")
    good, bad = tmp_path / "bridge.md", tmp_path / "bridge.xyz"
    good.write_text("# The bridge\n\nAda Berg built the Halden Bridge.\n")
    bad.write_bytes(bytes(range(256)))
    rights = frozenset({"ask", "write"})
    keys = [Key.of(KEY.encode(), rights=rights), Key.of(b"a-reader-of-this")]
    with asked(index, keys=keys) as client:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(str(client.base_url))
        documents = page.locator("details", has_text="Drop files")
        page.get_by_label("API key").fill("a-reader-of-this")
        page.keyboard.press("Tab")
        expect(page.locator("header")).to_contain_text("3 passages")
        expect(documents).to_be_hidden()
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Tab")
        documents.locator("summary").click()
        rows = page.get_by_role("rowheader")
        expect(rows).to_have_count(3)
        page.get_by_label("Add documents").set_input_files(bad)
        expect(page.get_by_role("alert")).to_contain_text("bridge.xyz was not read")
        page.get_by_label("Add documents").set_input_files(good)
        expect(documents).to_contain_text("1 passage added")
        expect(rows).to_have_count(4)
        expect(page.locator("header")).to_contain_text("4 passages")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        picture(page, tmp_path, "serve-documents")
        page.get_by_role("button", name="Delete The bridge").click()
        expect(rows).to_have_count(4)
        page.get_by_role("button", name="Delete The bridge for good").click()
        expect(documents).to_contain_text("1 passage removed")
        expect(rows).to_have_count(3)
        dropped = page.evaluate_handle(
            "() => { const data = new DataTransfer();"
            "data.items.add(new File(['Text.'], '<b>.txt')); return data; }"
        )
        page.dispatch_event(".drop", "drop", {"dataTransfer": dropped})
        expect(rows.filter(has_text="<b>")).to_have_count(1)
        page.close()


def test_the_page_is_accessible_by_screen_reader_and_keyboard(
    page: Page, index: ga_dspy.Index
) -> None:
    with asked(index) as client:
        page.goto(str(client.base_url))
        expect(page.get_by_label("Question")).to_be_focused()
        for name in ("Ask", "What connects"):
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent").startswith(name)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Copy link")).to_be_visible()
        levels = [
            int(each.evaluate("e => e.tagName")[1]) for each in page.get_by_role("heading").all()
        ]
        assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
        expect(page.get_by_role("heading", name="Answer")).to_have_count(1)
        answer = page.get_by_role("button", name="Answer ✓")
        expect(answer).to_have_attribute("aria-expanded", "true")
        controls = page.locator("button:visible, input:visible, summary:visible, a:visible").all()
        names = [each.aria_snapshot() for each in controls]
        assert names and not [name for name in names if '"' not in name and ": " not in name]
