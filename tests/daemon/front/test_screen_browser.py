"""The page to look at in a real browser, before a daemon whose words are made up.

AUTOSPEC_PICTURES=FOLDER keeps what it looks like.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from browser import BROWSER, DRIVER, MISSING, Browser, browser
from doors import Door, open_door
from told import HOSTILE, NEEDED, REASON, Daemon, bare, model

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=MISSING),
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(chromium: Browser) -> Browser:
    """The browser, with nothing left of another test."""
    chromium.go("about:blank")
    chromium.look(1280)
    chromium.errors()
    return chromium


class Standing:
    """A front door that stands in a thread, until `close`."""

    def __init__(self, folder: Path, port: int, daemon: Daemon, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        opened: Future[Door] = Future()

        async def stand() -> None:
            names = tuple(one["name"] for one in daemon.models)
            async with open_door(folder, port, names=names, ask=daemon, **settings) as door:
                opened.set_result(door)
                await self._end.wait()

        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(stand(),))
        self._thread.start()
        self.url = opened.result(30).base + "/autospec/"

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(30)
            self._loop.close()


Stand = Callable[..., Standing]


@pytest.fixture
def stand(tmp_path: Path, free_port: int) -> Iterator[Stand]:
    doors: list[Standing] = []

    def opened(daemon: Daemon | None = None, **settings: Any) -> Standing:
        doors.append(Standing(tmp_path, free_port, daemon or Daemon(), **settings))
        return doors[-1]

    yield opened
    for door in doors:
        door.close()


def shown(page: Browser, door: Standing, name: str = "chat") -> None:
    page.go(door.url)
    page.until_text("#name", name)


def test_what_the_watch_screen_shows_is_there_over_time(page: Browser, stand: Stand) -> None:
    shown(page, stand())
    assert page.text("#state") == "ready serves as chosen by measurement"
    figures = page.text("#figures")
    for words in ("27.3 tokens/s", "1.66×", "1.60× predicted", "72 %", "2 of 4", "1 h 2 min"):
        assert words in figures
    assert page.run("return document.querySelectorAll('#accepted .bar').length") == 14
    assert page.run("return document.querySelectorAll('#thresholds circle').length") == 13
    assert page.run("return document.querySelectorAll('#thresholds .never').length") == 1
    assert page.run("return document.querySelectorAll('#costs .point').length") == 1
    assert "118 ms with 7 drafted" in page.text("#operating")
    marks = "return [...document.querySelectorAll('#speed .mark')].map(one => one.textContent)"
    assert len(page.run(marks)) == 3
    assert any("died: signal 9" in mark for mark in page.run(marks))
    states = "return [...document.querySelectorAll('#speed .state')].map(one => one.textContent)"
    assert page.run(states) == ["ready", "loading", "ready"]
    line = page.run("return document.querySelector('#speed .rate').getAttribute('d')")
    assert line.count("M") == 3, "it breaks where nothing was generated"
    assert "pinned" in page.text("#setting")
    assert "4.1 tokens/s more for 15 min are 3,690 tokens" in page.text("#decisions")
    assert "died: signal 9" in page.text("#events")
    assert page.errors() == []


def test_it_asks_for_little_every_two_seconds_and_not_while_hidden(
    page: Browser, stand: Stand
) -> None:
    daemon = Daemon()
    door = stand(daemon)
    shown(page, door)

    def asked(what: str) -> int:
        return [one["op"] for one in daemon.asked].count(what)

    daemon.models[0]["live"]["rate"] = 33.33
    page.until_text("#figures", "33.3 tokens/s")
    page.until(lambda: asked("status") >= 4)
    assert asked("history") == 1
    assert asked("explain") <= 2
    page.run("""Object.defineProperty(document, "hidden", {value: true, configurable: true});
                document.dispatchEvent(new Event("visibilitychange"))""")
    page.run("window.before = performance.now()")
    before = asked("status")
    page.until(lambda: page.run("return performance.now() - window.before > 5000"))
    assert asked("status") <= before + 1
    page.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.until(lambda: asked("status") >= before + 2)
    assert page.errors() == []


def test_another_model_is_chosen_and_stays_so_in_the_address(page: Browser, stand: Stand) -> None:
    door = stand()
    shown(page, door)
    page.type("#model", "coder")
    page.until_text("#name", "coder")
    assert "backing off" in page.text("#state")
    assert "out of memory" in page.text("#state")
    assert page.text("#figures").splitlines()[:4:3] == ["Speed of a request", "Over plain decoding"]
    assert "–" in page.text("#figures")
    assert "Nothing drafted yet." in page.text("#accepted")
    assert "nothing was measured yet" in page.text("#setting")
    assert "NaN" not in page.run("return document.documentElement.outerHTML")
    page.go("about:blank")
    page.go(door.url + "#coder")
    page.until_text("#name", "coder")
    assert page.errors() == []


def test_whoever_cannot_see_it_is_told_what_everything_is(page: Browser, stand: Stand) -> None:
    shown(page, stand())
    for selector, role in (("main", "main"), ("header", "banner"), ("#model", "combobox")):
        assert page.name(selector)[0] == role
    assert page.name("#model")[1] == "Model"
    unnamed = """const all = "section, svg[role=img], select, input, summary, [tabindex='0']";
        return [...document.querySelectorAll(all)].filter(one => !(one.getAttribute("aria-label") ||
        one.textContent.trim() || one.labels?.length)).map(one => one.outerHTML)"""
    assert page.run(unnamed) == []
    for place in range(page.run("return document.querySelectorAll('section').length")):
        page.run(f"document.querySelectorAll('section')[{place}].dataset.place = {place}")
        role, name = page.name(f"section[data-place='{place}']")
        assert role == "region"
        assert name
    for chart in ("speed", "accepted", "thresholds", "costs"):
        role, name = page.name(f"#{chart} svg")
        assert role in ("img", "image")
        assert len(name) > 20
        page.click(f"details:has(#{chart}-table) summary")
        rows = f"return document.querySelectorAll('#{chart}-table tbody tr').length"
        page.until(lambda rows=rows: page.run(rows) >= 12)
    cells = "return [...document.querySelectorAll('#thresholds-table td')].map(c => c.textContent)"
    assert page.run(cells)[-1] == "never"
    assert len(page.run(cells)) == len(NEEDED)
    levels = "return [...document.querySelectorAll('h1, h2')].map(one => one.tagName)"
    assert page.run(levels).count("H1") == 1
    assert page.errors() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(page: Browser, stand: Stand, scheme: str) -> None:
    page.look(1280, scheme)
    shown(page, stand())
    faint = page.run("""
        const number = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = (color) => number(color).slice(0, 3).map((c) => c / 255)
          .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
          .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
        const behind = (one) => {
          for (; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            if (number(color)[3] !== 0) return color;
          }
        };
        return [...document.querySelectorAll("body *")].filter((one) =>
          [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) &&
          one.getClientRects().length).map((one) => {
            const style = getComputedStyle(one);
            const ink = one.namespaceURI.endsWith("svg") ? style.fill : style.color;
            const [a, b] = [ink, behind(one)].map(light);
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML];
          }).filter(([ratio]) => ratio < 4.5)""")
    assert faint == []


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_sticks_out_on_narrow_and_wide_screens(
    page: Browser, stand: Stand, width: int
) -> None:
    page.look(width)
    long = Daemon([model("a-model-" + "x" * 90, fault="y" * 300), bare("coder")])
    shown(page, stand(long), "a-model")
    wide = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert page.run(wide) == [width, width]
    page.look(360 if width == 1280 else 1280)
    page.until(lambda: page.run(wide)[0] == (360 if width == 1280 else 1280))


def test_names_and_reasons_are_text_whatever_they_hold(page: Browser, stand: Stand) -> None:
    hostile = model(HOSTILE, reason=REASON, fault=REASON, not_live=REASON)
    hostile["setting"]["why"] = REASON
    hostile["setting"]["sources"]["n_max"] = REASON
    hostile["decision"]["reason"] = REASON
    shown(page, stand(Daemon([hostile, model(REASON, state=REASON)])), HOSTILE)
    for selector in ("#state", "#setting", "#decisions"):
        assert REASON in page.text(selector)
    assert page.run("return document.querySelector('#model').options[1].value") == REASON
    page.run("location.hash = encodeURIComponent(arguments[0])", REASON)
    page.until_text("#events", f"said {REASON}")
    assert page.text("#name") == REASON
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    assert page.run("return document.body.dataset.owned ?? null") is None
    assert page.errors() == []


def test_a_key_is_asked_for_and_kept_in_this_tab(
    page: Browser, stand: Stand, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    door = stand(api_key_file=str(keys))
    page.go(door.url)
    page.until_text("#door", "This server asks for a key")
    assert page.name("#key")[1] == "API key"
    assert page.run("return document.activeElement.id") == "key"
    for wrong, words in (("nope", "did not accept"), ("schlüssel", "letters, digits")):
        page.type("#key", f"{wrong}\n")
        page.until_text("#refusal", words)
        page.run("document.querySelector('#key').value = ''")
    page.type("#key", "secret\n")
    page.until_text("#name", "chat")
    assert page.text("#door") == ""
    assert "secret" not in page.run("return location.href + document.cookie")
    page.go(door.url)
    page.until_text("#name", "chat")
    assert not [error for error in page.errors() if "401" not in error]


def test_a_daemon_that_is_gone_is_said_and_taken_up_again(page: Browser, stand: Stand) -> None:
    door = stand()
    shown(page, door)
    assert page.text("#silence") == ""
    door.close()
    gone = page.until_text("#silence", "No answer from autospec since")
    assert "What is shown is of then." in gone
    assert page.name("#silence")[0] == "alert"
    assert page.text("#name") == "chat"
    stand()
    page.until(lambda: page.text("#silence") == "")
    assert not [error for error in page.errors() if "ERR_" not in error]


@pytest.mark.skipif(
    "AUTOSPEC_PICTURES" not in os.environ, reason="AUTOSPEC_PICTURES names a folder"
)
def test_pictures(page: Browser, stand: Stand) -> None:
    folder = Path(os.environ["AUTOSPEC_PICTURES"])
    door = stand()
    for width, scheme in ((1280, "light"), (1280, "dark"), (360, "light"), (800, "dark")):
        page.look(width, scheme)
        for name in ("chat", "coder"):
            page.go("about:blank")
            page.go(f"{door.url}#{name}")
            page.until_text("#name", name)
            page.picture(folder / f"{name}-{width}-{scheme}.png")
    assert len(list(folder.glob("*-*-*.png"))) == 8
