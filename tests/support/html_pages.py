"""Pages of reports as tests read them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

VOID = {"meta", "img", "link", "br", "input"}
MAX_BYTES = 1 << 20


class Reader(HTMLParser):
    """Reads a page: its text, its elements, and whether every element is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def shown(self) -> str:
        """The text as it is read and copied, without what is between elements."""
        return "".join(self.words)

    def count(self, tag: str, style: str = "") -> int:
        return sum(t == tag and (a.get("class") or "").startswith(style) for t, a in self.found)


def checked(html: str) -> Reader:
    """Read a page and make sure that it loads and runs nothing."""
    read = Reader(html)
    tags = {tag for tag, _ in read.found}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "a", "image", "use"}
    for _, attributes in read.found:
        assert not any(name.startswith("on") or name in {"src", "href"} for name in attributes)
        assert "url(" not in (attributes.get("style") or "")
    assert "@import" not in html
    assert "url(" not in html.partition("</style>")[0]
    policy = [a.get("content") for t, a in read.found if t == "meta" and "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert len(html.encode()) < MAX_BYTES
    return read


# A headless Chromium that opens pages, driven through a pair of pipes by its own protocol.
#
# Nothing leaves the machine: the browser gets no network, and everything that a page asks for or
# complains of is kept.

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
# The browser reads from 3 and writes to 4.
_PLACING: Final = """
import os, sys
ends = [os.dup(int(end)) for end in sys.argv[1:3]]
for place, end in enumerate(ends, 3):
    os.dup2(end, place)
    os.set_inheritable(place, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
_CHUNK: Final = 1 << 16
_OVERFLOWING: Final = """
Array.from(document.querySelectorAll('body *'))
  .filter(e => !e.closest('.scroll') && !e.closest('svg') && e.getClientRects().length)
  .filter(e => {
    const r = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (r.right > innerWidth + 0.5 || r.left < -0.5) return true;
    return e.scrollWidth > e.clientWidth + 1 && style.display !== 'inline'
      && style.textOverflow !== 'ellipsis';
  })
  .map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 40))
"""


def chromium() -> str | None:
    """Return the path of a Chromium, None if there is none; LIQUID_CHROMIUM names another."""
    named = os.environ.get("LIQUID_CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


@dataclass(slots=True, kw_only=True)
class Opened:
    """A page as it is shown: what it asked for besides itself, and what it complained of."""

    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Browser:
    """One tab. Widths are in CSS pixels."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers = to, answers
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[Mapping[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, page: Path, *, width: int, dark: bool = False, media: str = "screen") -> Opened:
        """Show a page of the disk in a window that is `width` wide."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._events.clear()
        address = page.resolve().as_uri()
        self._ask("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())
        self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        return _opened(address, self._events)

    def value(self, script: str) -> Any:
        """Return the value of an expression on the page, awaited."""
        found = self._ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def overflowing(self) -> list[str]:
        """Return the elements that are wider than their place, or than the page."""
        return [*self.value(_OVERFLOWING)]

    def picture(self, begin: str = "html", *, height: int, quality: int = 80) -> bytes:
        """Return the page as WebP, in its width, `height` from the first element `begin` on."""
        top = self.value(f"document.querySelector({begin!r}).getBoundingClientRect().top + scrollY")
        whole = self.value("[innerWidth, document.documentElement.scrollHeight]")
        size = {"width": whole[0], "height": min(height, whole[1] - top)}
        clip = {"x": 0, "y": top, **size, "scale": 1}
        shot = self._ask(
            "Page.captureScreenshot",
            format="webp",
            quality=quality,
            clip=clip,
            captureBeyondViewport=True,
        )
        return b64decode(shot["data"])

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        _write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._events.append(answer)

    def _read(self) -> Mapping[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._answers, _CHUNK)
            assert chunk, "the browser has ended"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        found: Mapping[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """Start a Chromium with a profile of its own; end it afterwards."""
    asked, to = os.pipe()
    answers, told = os.pipe()

    placed = (sys.executable, "-c", _PLACING, str(asked), str(told))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [*placed, program, *_OPTIONS, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(asked, told),
            start_new_session=True,
        )
        os.close(asked)
        os.close(told)
        try:
            yield Browser(to, answers)
        finally:
            os.close(to)
            os.close(answers)
            process.kill()
            process.wait()


def _write(to: int, message: bytes) -> None:
    while message:
        message = message[os.write(to, message) :]


def _opened(address: str, events: list[Mapping[str, Any]]) -> Opened:
    opened = Opened()
    for event in events:
        details = event.get("params", {})
        match event["method"]:
            case "Network.requestWillBeSent":
                asked = details["request"]["url"]
                if asked != address:
                    opened.asked.append(asked)
            case "Log.entryAdded":
                opened.complaints.append(details["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                opened.complaints.append(json.dumps(details))
            case _:
                pass
    return opened
