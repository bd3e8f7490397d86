"""A headless Chromium that tests drive by the WebDriver protocol (W3C), by the standard library alone."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_STARTED = "was started successfully on port "
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_LIMIT_S = 120
_MOST_LOOKS, _BETWEEN_LOOKS_S = 100, 0.1


@functools.cache
def browser_programs() -> tuple[str, str] | None:
    """Return the paths of chromedriver and Chromium, None where one is not installed."""
    driver = shutil.which("chromedriver")
    browser = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    return (driver, browser) if driver and browser else None


class Page:
    """One window of a browser."""

    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, file: Path, fragment: str = "") -> None:
        """Load a file, and wait until its scripts are done."""
        self._post("/url", {"url": "about:blank"})
        self._post("/url", {"url": f"{file.resolve().as_uri()}{fragment}"})
        # On a busy machine the driver answers before the empty page has gone.
        for _ in range(_MOST_LOOKS):
            if self.run("return location.protocol === 'file:' && document.readyState === 'complete'"):
                return
            time.sleep(_BETWEEN_LOOKS_S)

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 (anything that the script returns)
        """Return what a script's function body returns; a promise is waited for."""
        body = (
            f"const done = [...arguments].at(-1); (async (...a) => {{ {script} }})(...arguments).then(done);"
        )
        return self._post("/execute/async", {"script": body, "args": list(arguments)})

    def text(self, selector: str) -> str:
        """Return the text of an element as it is seen."""
        return str(self.run("return document.querySelector(a[0]).innerText", selector))

    def press(self, *keys: str) -> None:
        """Press keys one after another, as a person does; names such as "Enter" stand for special ones."""
        special = {
            "Enter": "\ue007",
            "Escape": "\ue00c",
            "Left": "\ue012",
            "Right": "\ue014",
            "Shift": "\ue008",
        }
        signs = [special.get(key, key) for key in keys]
        actions = [{"type": kind, "value": sign} for sign in signs for kind in ("keyDown", "keyUp")]
        self._post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, selector: str, x: float | None = None, y: float | None = None) -> None:
        """Click an element in its middle, or so many pixels from its left and its top."""
        # What a key has just hidden or shown moves the page once more as it is drawn.
        self.run(
            "document.querySelector(a[0]).scrollIntoView({block: 'center', behavior: 'instant'});"
            " await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));",
            selector,
        )
        left, top, width, height = self.run(
            "const b = document.querySelector(a[0]).getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]",
            selector,
        )
        at = {
            "x": round(left + (width / 2 if x is None else x)),
            "y": round(top + (height / 2 if y is None else y)),
        }
        moves = [
            {"type": "pointerMove", "duration": 0, **at},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._post("/actions", {"actions": [_pointer(moves)]})

    def picture(self, file: Path) -> None:
        """Write what is on screen as a PNG."""
        file.write_bytes(base64.b64decode(self._get("/screenshot")))

    def errors(self) -> list[str]:
        """Return what the console reported errors of scripts, refused or missing files."""
        entries = self._post("/se/log", {"type": "browser"})
        return [str(entry["message"]) for entry in entries if entry["level"] in {"SEVERE", "WARNING"}]

    def prefer(self, *, dark: bool) -> None:
        """Let the system prefer dark or light pages."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [feature]})

    def size(self, width: int, height: int) -> None:
        """Give the page a size in pixels."""
        metrics: dict[str, object] = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": False,
        }
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)

    def scripts(self, *, allowed: bool) -> None:
        """Allow or forbid scripts."""
        self._devtools("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def source(self) -> str:
        """Return the text that the document shows, scripts or not."""
        found = self._post("/element", {"using": "css selector", "value": "body"})
        return str(self._get(f"/element/{found[_ELEMENT]}/text"))

    def _devtools(self, command: str, parameters: dict[str, object]) -> None:
        self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _post(self, path: str, body: object) -> Any:  # noqa: ANN401 (JSON)
        return _ask(f"{self._address}{path}", body)

    def _get(self, path: str) -> Any:  # noqa: ANN401 (JSON)
        return _ask(f"{self._address}{path}", None)


@contextlib.contextmanager
def opened_browser() -> Iterator[Page]:
    """Start a browser without a screen, and end it with the block."""
    programs = browser_programs()
    if programs is None:
        raise LookupError("chromium and chromedriver are not both installed")
    driver, browser = programs
    with tempfile.TemporaryDirectory() as folder, _driver(driver) as address:
        arguments = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", f"--user-data-dir={folder}", "--window-size=1280,900",
        ]  # fmt: skip
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": browser, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = _ask(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        page = f"{address}/session/{session['sessionId']}"
        _ask(f"{page}/timeouts", {"script": 1000 * _LIMIT_S})
        try:
            yield Page(page)
        finally:
            _ask(page, None, method="DELETE")


@contextlib.contextmanager
def _driver(program: str) -> Iterator[str]:
    """Start chromedriver at a free port and yield its address."""
    with subprocess.Popen(
        [program, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        try:
            assert running.stdout is not None
            line = next((line for line in running.stdout if _STARTED in line), "")
            port = line.partition(_STARTED)[2].strip().rstrip(".")
            if not port:
                raise LookupError("chromedriver did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()


def _pointer(moves: list[dict[str, object]]) -> dict[str, object]:
    return {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}


def _ask(address: str, body: object, *, method: str | None = None) -> Any:  # noqa: ANN401 (JSON)
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, data=data, method=method, headers=headers)  # noqa: S310 (likewise)
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:  # noqa: S310 (a driver of our own)
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        shown = json.load(error)["value"]
        raise AssertionError(f"{shown['error']}: {shown['message'].splitlines()[0]}") from error
