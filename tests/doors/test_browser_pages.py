"""The pages in a real Chromium: keyboard, phone, colours, and a security policy that nothing of ours offends."""

import pytest

from tests.house.running import RunningSkep

from .chromium import Tab

FOCUSED = "document.activeElement.getAttribute('href') || document.activeElement.id"


@pytest.fixture(scope="module")
def pages(full_skep: RunningSkep) -> dict[str, str]:
    source = next(row["id"] for row in full_skep.rows("source", "list") if row["visibility"] == "public")
    paths = {
        "home": "/",
        "results": "/?q=honey",
        "commits": "/?q=type%3Acommit",
        "wrong": "/?q=%2Fab(%2F",
        "sources": "/sources",
        "source": f"/sources/{source}",
        "report": f"/sources/{source}/report",
        "file": f"/sources/{source}/file/src/main.py",
        "tree": f"/sources/{source}/tree/src",
        "status": "/status",
        "docs": "/docs",
        "login": "/login",
    }
    return {name: full_skep.url + path for name, path in paths.items()}


def test_every_page_fits_a_phone_and_keeps_the_policy(tab: Tab, pages: dict[str, str]) -> None:
    tab.size(390, 844, dark=True)
    for name, url in pages.items():
        tab.open(url)
        if name == "wrong":
            tab.console.clear()  # the browser reports the answer's status 400
        assert tab.value("document.documentElement.scrollWidth") <= 390, name
        assert tab.value("getComputedStyle(document.querySelector('.top')).display") == "flex", name
        assert tab.console == [], name


def test_there_is_room_to_write_a_query(tab: Tab, pages: dict[str, str]) -> None:
    for width in (1100, 1280, 1600):
        tab.size(width, 800)
        tab.open(pages["status"])
        assert tab.value("document.querySelector('.top .box input').offsetWidth") >= 200, width
        assert tab.value("document.documentElement.scrollWidth") <= width


def test_search_without_a_mouse(tab: Tab, pages: dict[str, str]) -> None:
    tab.open(pages["home"])
    assert tab.value(FOCUSED) == "q"
    tab.call("Input.insertText", text="honey file:main")
    tab.enter()
    assert tab.value("[...document.querySelectorAll('mark')].map(m => m.textContent).join()") == "honey,honey,honey"
    tab.press("j", "j")
    first = tab.value(FOCUSED)
    tab.press("j", "j")
    second = tab.value(FOCUSED)
    assert (first[-3:], second[-3:]) == ("#L1", "#L2")
    tab.press("k", "k")
    assert tab.value(FOCUSED) == first
    tab.press("/", "/")
    assert tab.value(FOCUSED) == "q"
    assert tab.value("document.getElementById('q').value") == "honey file:main"
    tab.press("ArrowDown")
    tab.enter()
    assert (
        tab.value("location.hash + document.querySelector('.line.marked code').textContent")
        == "#L1def find_honey(hive):"
    )


OFFERED = """new Promise(done => {
  const look = () => document.querySelector('#offers li') ? done(1) : requestAnimationFrame(look);
  look();
})"""


def test_the_box_completes_what_is_written(tab: Tab, pages: dict[str, str]) -> None:
    tab.open(pages["home"])
    tab.call("Input.insertText", text="honey lang:pyth")
    tab.value(OFFERED)
    assert tab.value("document.getElementById('q').getAttribute('aria-expanded')") == "true"
    tab.press("ArrowDown")
    assert tab.value("document.querySelector('#offers [aria-selected=true]').textContent") == "lang:Python"
    tab.press("Enter", "\r")
    assert tab.value("document.getElementById('q').value") == "honey lang:Python "
    assert tab.value("document.getElementById('offers').hidden") is True
    tab.enter()
    assert tab.value("document.querySelector('.path').textContent") == "src/main.py"


def test_hostile_names_stay_text(tab: Tab, pages: dict[str, str]) -> None:
    tab.open(pages["results"])
    assert tab.value("[...document.scripts].every(one => one.src.includes('/static/'))")
    assert "<script>alert(2)</script>" in tab.value("document.querySelector('main').textContent")


def test_a_range_of_lines(tab: Tab, pages: dict[str, str]) -> None:
    tab.open(pages["file"] + "#L1-L2")
    assert tab.value("document.querySelectorAll('.line.marked').length") == 2
    keyword = "document.querySelector('.code .k')?.textContent"
    while tab.value(keyword) is None:  # colours that do not come in time are not waited for
        tab.open(pages["file"])
    assert tab.value(keyword) == "def"


def test_the_clone_command_can_be_copied(tab: Tab, pages: dict[str, str]) -> None:
    tab.open(pages["source"])
    assert tab.value("document.querySelector('[data-copy]').hidden") is False


def test_a_person_logs_in_adds_and_removes_a_source(tab: Tab, full_skep: RunningSkep) -> None:
    tab.open(full_skep.url + "/login?next=/sources")
    tab.value(f"document.getElementById('token').value = {full_skep.token!r}; 0")
    tab.submit("form.stack button")
    assert tab.value("location.pathname") == "/sources"
    tab.value("document.getElementById('url').value = 'http://127.0.0.1:9/not/there'; 0")
    tab.submit("form.add button")
    assert tab.value("document.querySelector('h1').textContent").endswith("not/there")
    tab.submit("button.danger")
    assert tab.value("location.pathname") == "/sources"
    assert "not/there" not in tab.value("document.querySelector('main').textContent")
