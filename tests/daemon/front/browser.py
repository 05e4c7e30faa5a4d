"""A headless Chromium, driven over the WebDriver protocol (plain HTTP, W3C) by its own driver."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "needs a Chromium and its driver: `apt-get install chromium chromium-driver`"
PATIENCE = 30.0
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-proxy-server",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    def __init__(self, http: httpx.Client, session: str) -> None:
        self._http, self._session = http, session

    def _do(self, method: str, path: str, **body: Any) -> Any:
        given = body if method == "POST" else None
        answer = self._http.request(method, f"/session/{self._session}{path}", json=given)
        told = answer.json()["value"]
        assert answer.is_success, told
        return told

    def go(self, url: str) -> None:
        self._do("POST", "/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What `script` returns."""
        return self._do("POST", "/execute/sync", script=script, args=list(arguments))

    def find(self, selector: str) -> str:
        using = {"using": "css selector", "value": selector}
        return str(self._do("POST", "/element", **using)[_ELEMENT])

    def text(self, selector: str) -> str:
        """The text of an element as it is rendered: nothing where it is hidden."""
        return str(self._do("GET", f"/element/{self.find(selector)}/text"))

    def name(self, selector: str) -> tuple[str, str]:
        """Role and name of an element as assistive technology is told them."""
        found = f"/element/{self.find(selector)}"
        role, label = (self._do("GET", f"{found}/computed{what}") for what in ("role", "label"))
        return str(role), str(label)

    def type(self, selector: str, text: str) -> None:
        self._do("POST", f"/element/{self.find(selector)}/value", text=text)

    def click(self, selector: str) -> None:
        self._do("POST", f"/element/{self.find(selector)}/click")

    def errors(self) -> list[str]:
        """What went to the console since the last call, down to warnings."""
        return [str(one["message"]) for one in self._do("POST", "/se/log", type="browser")]

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._do("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def look(self, width: int, scheme: str = "light") -> None:
        """Show the page so wide, in a colour scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def picture(self, file: Path) -> None:
        """All of the page, scrolled or not."""
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def until(self, reached: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := reached()):
            assert time.monotonic() < deadline, self.text("body")
            time.sleep(0.05)
        return found

    def until_text(self, selector: str, part: str) -> str:
        def reached() -> str | None:
            text = self.text(selector)
            return text if part in text else None

        return str(self.until(reached))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser of its own, with nothing from before, that is gone afterwards."""
    assert BROWSER is not None
    assert DRIVER is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL)
    options = {
        "binary": BROWSER,
        "args": [*_ARGUMENTS, f"--user-data-dir={profile}"],
    }
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "WARNING"}}
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False
        ) as http:
            _ready(http)
            given = {"capabilities": {"alwaysMatch": wanted}}
            session = http.post("/session", json=given).json()["value"]
            assert "sessionId" in session, session
            try:
                yield Browser(http, session["sessionId"])
            finally:
                http.delete(f"/session/{session['sessionId']}")
    finally:
        driver.terminate()
        driver.wait(PATIENCE)


def _ready(http: httpx.Client) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            http.get("/status")
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return
