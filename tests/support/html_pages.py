"""Pages of reports as tests read them."""

from html.parser import HTMLParser

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
