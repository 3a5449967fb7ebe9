"""The pages as a browser without scripts would see them, over a real Skep with real mirrors."""

import html.parser
import re
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.house.running import RunningSkep
from tests.house.waiting import until

from .conftest import ODD_FILES

_VOID = {"meta", "link", "input", "img", "br"}


class Parsed(html.parser.HTMLParser):
    """Text, links and elements of a page; every element must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.marks: list[str] = []
        self.badges: list[str] = []
        self._open: list[str] = []
        self._badge = False
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self._badge = "badge" in (found.get("class") or "").split()
        if tag == "a":
            self.links.append(found.get("href") or "")
        if tag == "mark":
            self.marks.append("")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if self._badge:
            self.badges.append(data)
            self._badge = False
        if self._open and self._open[-1] == "mark":
            self.marks[-1] += data


class Browser:
    """Follows links with the session it was given."""

    def __init__(self, base: str, token: str = "") -> None:
        self.base = base
        self._headers = {"Accept": "text/html"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str) -> tuple[int, Parsed]:
        request = urllib.request.Request(self.base + path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, Parsed(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, Parsed(error.read().decode())

    def page(self, path: str) -> Parsed:
        status, parsed = self.get(path)
        assert status == 200, (path, parsed.words)
        return parsed


@pytest.fixture
def browser(full_skep: RunningSkep) -> Browser:
    return Browser(full_skep.url)


@pytest.fixture
def source(full_skep: RunningSkep) -> str:
    listed = full_skep.rows("source", "list")
    return next(str(row["id"]) for row in listed if row["name"].endswith("odd/names"))


def found(browser: Browser, query: str) -> Parsed:
    return browser.page("/?q=" + urllib.parse.quote(query))


def test_the_first_page_searches_at_once(browser: Browser) -> None:
    first = browser.page("/")
    box = next(attrs for tag, attrs in first.tags if tag == "input")
    assert (box["name"], "autofocus" in box) == ("q", True)
    assert "sources" in first.words


def test_hits_are_marked_and_lead_to_their_lines(browser: Browser) -> None:
    results = found(browser, "honey file:main")
    assert set(results.marks) == {"honey"}
    assert "def find_honey(hive):" in results.words
    assert "3 lines" in results.words or "2 lines" in results.words
    link = next(link for link in results.links if link.endswith("#L2"))
    file = browser.page(link.partition("#")[0])
    assert any(attrs.get("id") == "L2" for _, attrs in file.tags)
    assert "return hive['honey']  # sweet honey" in file.words


def test_what_narrows_finds_as_many_files_as_it_says(browser: Browser) -> None:
    for query in ("honey", "honey or hive"):
        results = found(browser, query)
        links = [link for link in results.links if "lang%3A" in link or "repo%3A" in link]
        assert len(links) > 1
        for link in links:
            text = re.sub(r"\s+", " ", browser.page(link).words)
            _, _, name = urllib.parse.unquote_plus(link).rpartition(":")
            said = re.search(rf"{re.escape(name)} ([\d,]+)", re.sub(r"\s+", " ", results.words))
            assert said is not None, (name, results.words)
            assert re.search(rf" in {said[1]} files? ", text), (link, text)


def test_every_awkward_name_is_text_and_its_link_works(browser: Browser) -> None:
    results = found(browser, "honey")
    for name, content in ODD_FILES.items():
        if isinstance(content, bytes) and b"honey" in content and b"\0" not in content:
            assert str(name) in results.words
    assert not [
        tag for tag, attrs in results.tags if tag == "script" and not (attrs.get("src") or "").startswith("/static/")
    ]
    links = {link.partition("#")[0] for link in results.links if "/file/" in link}
    assert len(links) == 6
    for link in links:
        assert "honey" in browser.page(link).words, link


def test_no_page_carries_inline_script_or_style_or_anything_from_elsewhere(browser: Browser, source: str) -> None:
    for path in ("/", "/?q=honey", "/?q=/(/", "/sources", f"/sources/{source}", "/status", "/login", "/docs", "/nope"):
        _, parsed = browser.get(path)
        for tag, attrs in parsed.tags:
            assert tag != "style" and "style" not in attrs, path
            assert not [name for name in attrs if name.startswith("on")], path
            for name in ("src", "action") if tag != "link" else ("href",):
                assert (attrs.get(name) or "/").startswith("/"), (path, tag, attrs)


def test_every_field_has_a_label(full_skep: RunningSkep, source: str) -> None:
    admin = Browser(full_skep.url, full_skep.token)
    for path in ("/", "/sources", f"/sources/{source}", "/login"):
        parsed = admin.page(path)
        labelled = {attrs.get("for") for tag, attrs in parsed.tags if tag == "label"}
        for tag, attrs in parsed.tags:
            if tag in ("input", "select") and attrs.get("type") != "hidden" and "hidden" not in attrs:
                assert attrs.get("id") in labelled, (path, attrs)


def test_a_wrong_query_points_at_the_place(browser: Browser) -> None:
    status, parsed = browser.get("/?q=" + urllib.parse.quote("/ab(/"))
    assert status == 400
    assert re.search(r"^ *\^$", parsed.words, re.MULTILINE)


def test_a_source_has_its_tree_its_readme_and_its_clone_command(browser: Browser, source: str) -> None:
    page = browser.page(f"/sources/{source}")
    assert f"git clone {browser.base}/git/" in page.words
    assert "<script>alert('readme')</script>" in page.words
    assert "current" in page.words
    folders = [link for link in page.links if "/tree/" in link]
    files = [link for link in page.links if "/file/" in link]
    assert len(folders) == 3
    for link in [*folders, *files]:
        browser.page(link)


def test_what_cannot_be_shown_as_text(browser: Browser, source: str) -> None:
    assert "Binary" in browser.page(f"/sources/{source}/file/bytes.bin").words
    assert "src/main.py" in browser.page(f"/sources/{source}/file/link").words


def test_a_long_file_is_shown_around_the_line_that_was_found(browser: Browser) -> None:
    link = next(link for link in found(browser, "nectar").links if link.endswith("#L30000"))
    file = browser.page(link.partition("#")[0])
    assert any(attrs.get("id") == "L30000" for _, attrs in file.tags)
    assert sum(tag == "code" for tag, _ in file.tags) <= 20_010
    assert "nectar" not in browser.page(link.partition("?")[0]).words


@pytest.mark.parametrize(
    "path",
    ["/sources/nobody", "/sources/{}/file/none.txt", "/sources/{}/tree/none", "/sources/{}/file/src/main.py?rev=--x"],
)
def test_what_is_not_there(browser: Browser, source: str, path: str) -> None:
    status, parsed = browser.get(path.format(source))
    assert status == 404
    assert "404" in parsed.words


def test_private_sources_are_not_there_for_strangers(full_skep: RunningSkep, browser: Browser) -> None:
    admin = Browser(full_skep.url, full_skep.token)
    secret = next(row["id"] for row in full_skep.rows("source", "list") if row["visibility"] == "private")
    assert "honeypot" in found(admin, "honeypot").words
    assert found(browser, "honeypot").marks == []
    assert "secret" not in browser.page("/sources").words
    for path in (f"/sources/{secret}", f"/sources/{secret}/file/plan.txt", f"/sources/{secret}/tree"):
        assert browser.get(path)[0] == 404
        admin.page(path)


def test_strangers_see_no_buttons_that_change(full_skep: RunningSkep, browser: Browser, source: str) -> None:
    assert "Fetch now" not in browser.page(f"/sources/{source}").words
    assert "Fetch now" in Browser(full_skep.url, full_skep.token).page(f"/sources/{source}").words


def test_status_names_the_members(full_skep: RunningSkep, browser: Browser) -> None:
    def ready() -> Parsed | None:
        page = browser.page("/status")
        return page if page.badges[0] == "ready" else None

    # a worker that held its breath is missed for a moment
    assert "worker" in until(ready, full_skep).words
