"""Following a topic over a real connection, and its pages in a real Chromium."""

import http.client
import json
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.house.running import RunningSkep

from .chromium import Tab

API = "/api/v1/topics"
SECONDS = 30


@pytest.fixture(scope="module")
def skep(full_skep: RunningSkep) -> RunningSkep:
    call(full_skep, "POST", API, {"name": "live"})
    call(full_skep, "POST", API, {"name": "wide", "partitions": 3})
    return full_skep


def call(skep: RunningSkep, method: str, path: str, body: Any = None) -> Any:
    headers = {"authorization": f"Bearer {skep.token}", "content-type": "application/json"}
    with closing(connection(skep)) as link:
        link.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = link.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text) if text else None


def connection(skep: RunningSkep) -> http.client.HTTPConnection:
    place = urllib.parse.urlsplit(skep.url)
    return http.client.HTTPConnection(place.hostname or "", place.port, timeout=SECONDS)


def publish(skep: RunningSkep, topic: str, *bodies: Any, **more: Any) -> int:
    posted = call(skep, "POST", f"{API}/{topic}/messages", {"messages": [{"body": body, **more} for body in bodies]})
    return int(posted["posted"][0]["offset"])


@contextmanager
def following(skep: RunningSkep, path: str, **headers: str) -> Iterator[Iterator[dict[str, str]]]:
    with closing(connection(skep)) as link:
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        yield events(answer)
        answer.close()


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """As a browser would: fields until an empty line, comments passed over."""
    fields: dict[str, str] = {}
    for line in answer:
        name, colon, value = line.decode().rstrip("\n").partition(": ")
        if name and colon:
            fields[name] = value
        elif not name and fields:
            yield fields
            fields = {}


def test_a_follower_hears_what_was_and_what_comes(skep: RunningSkep) -> None:
    start = publish(skep, "live", "first", {"n": 2})
    with following(skep, f"{API}/live/follow?offset={start}") as heard:
        assert [json.loads(next(heard)["data"])["body"] for _ in range(2)] == ["first", {"n": 2}]
        publish(skep, "live", "third", key="k")
        third = next(heard)
        assert int(third["id"]) == start + 2
        told = json.loads(third["data"])
        assert (told["body"], told["key"], told["partition"]) == ("third", "k", 0)
    with following(skep, f"{API}/live/follow", **{"Last-Event-ID": str(start + 1)}) as heard:
        assert next(heard)["id"] == str(start + 2)


def test_several_follow_at_once(skep: RunningSkep) -> None:
    with (
        following(skep, f"{API}/wide/follow?partition=1") as one,
        following(skep, f"{API}/wide/follow?partition=1") as two,
    ):
        publish(skep, "wide", "elsewhere", partition=0)
        publish(skep, "wide", "here", partition=1)
        for heard in (one, two):
            message = json.loads(next(heard)["data"])
            assert (message["body"], message["partition"]) == ("here", 1)


def test_lines_in_a_body_do_not_end_an_event(skep: RunningSkep) -> None:
    offset = int(call(skep, "POST", f"{API}/live/messages", {"body": 0})["posted"][0]["offset"]) + 1
    with closing(connection(skep)) as link:
        headers = {"authorization": f"Bearer {skep.token}", "content-type": "text/plain"}
        link.request("POST", f"{API}/live/messages", b'{\r\n"a":\n\n1}', headers)
        assert link.getresponse().status == 201
    with following(skep, f"{API}/live/follow?offset={offset}") as heard:
        assert json.loads(next(heard)["data"])["body"] == {"a": 1}


def test_a_follower_below_the_edge_is_told(skep: RunningSkep) -> None:
    start = publish(skep, "live", 1, 2, 3)
    call(skep, "POST", f"{API}/live/trim", {"before": start + 2})
    with following(skep, f"{API}/live/follow?offset={start}") as heard:
        assert next(heard) == {"event": "trimmed", "data": json.dumps({"first": start + 2}, separators=(",", ":"))}
        assert next(heard)["id"] == str(start + 2)


def test_curl_follows(skep: RunningSkep) -> None:
    offset = publish(skep, "live", "for curl")
    command = ["curl", "-sN", f"{skep.url}{API}/live/follow?offset={offset}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        try:
            line = next(line for line in curl.stdout if line.startswith("data: "))
        finally:
            curl.kill()
    assert json.loads(line.removeprefix("data: "))["body"] == "for curl"


def words(tab: Tab, selector: str = "main") -> str:
    return str(tab.value(f"document.querySelector({selector!r}).textContent"))


def test_the_list_names_topics_and_readers(tab: Tab, skep: RunningSkep) -> None:
    publish(skep, "wide", *range(5), partition=2)
    call(skep, "POST", f"{API}/wide/groups/team/join", {"start": "beginning"})
    tab.open(skep.url + "/topics")
    text = words(tab)
    assert "skep.changes" in text and "3 partitions" in text and "team" in text and "behind" in text
    tab.submit("a[href='/topics/wide']")
    assert "team" in words(tab, "aside") and "partition" in words(tab, ".title")
    tab.submit("nav.filter a[href='/topics/wide?partition=2']")
    assert tab.value("document.querySelectorAll('.message').length") == 5


def test_messages_are_browsed_by_offset(tab: Tab, skep: RunningSkep) -> None:
    call(skep, "POST", API, {"name": "long"})
    publish(skep, "long", *range(60))
    publish(skep, "long", {"deep": {"b": "<script>alert(1)</script>"}}, headers={"h": "v"}, key="<b>k")
    publish(skep, "long", "x" * 9000)
    offsets = "[...document.querySelectorAll('.message h3 a')].map(a => +a.textContent)"
    tab.open(skep.url + "/topics/long")
    assert tab.value(offsets) == list(range(61, 36, -1))
    assert "more character" in words(tab, "#m61") and len(words(tab, "#m61 pre")) == 4000
    shown = words(tab, "#m60")
    assert '"deep": {\n    "b": "<script>alert(1)</script>"' in shown and "<b>k" in shown
    tab.submit("a[rel=next]")
    assert tab.value(offsets) == list(range(36, 11, -1))
    tab.submit("a[rel=next]")
    assert tab.value(offsets) == list(range(11, -1, -1))
    tab.submit("a[rel=prev]")
    assert tab.value(offsets)[0] == 36
    tab.value("document.getElementById('offset').value = 50; 0")
    tab.submit("form.go button")
    assert tab.value(offsets) == list(range(50, 62))


def test_a_page_follows_live(tab: Tab, skep: RunningSkep) -> None:
    call(skep, "POST", API, {"name": "ticker"})
    tab.open(skep.url + "/topics/ticker")
    assert tab.value("document.querySelector('[data-follow]').hidden") is False
    tab.value("document.querySelector('[data-follow] button').click()")
    publish(skep, "ticker", {"price": 7}, key="<i>gold")
    shown = """new Promise(done => {
        const list = document.querySelector('.messages');
        const look = () => list.children.length == COUNT ? done(list.textContent) : requestAnimationFrame(look);
        look();
    })"""
    assert '"price": 7' in tab.value(shown.replace("COUNT", "1"))
    assert words(tab, ".message .badge") == "<i>gold"
    publish(skep, "ticker", "second")
    assert str(tab.value(shown.replace("COUNT", "2"))).index("second") < 120
    tab.value("document.querySelector('[data-follow] button').click()")
    assert words(tab, "[data-follow] button") == "Follow"


def test_the_pages_fit_a_phone(tab: Tab, skep: RunningSkep) -> None:
    call(skep, "POST", API, {"name": "n" * 200, "partitions": 20})
    publish(skep, "n" * 200, "w" * 3000, key="k" * 300, headers={"h" * 90: "v" * 300}, partition=0)
    call(skep, "POST", f"{API}/{'n' * 200}/groups/{'g' * 150}/join", {})
    for dark in (False, True):
        tab.size(390, 844, dark=dark)
        for path in ("/topics", "/topics/" + "n" * 200, "/topics/live?offset=0", "/topics/skep.changes"):
            tab.open(skep.url + path)
            assert tab.value("document.documentElement.scrollWidth") <= 390, path


def test_skeps_own_topics_need_a_token_to_be_read(tab: Tab, skep: RunningSkep) -> None:
    tab.open(skep.url + "/topics/skep.changes")
    assert "scope private" in words(tab)
    assert tab.value("document.querySelectorAll('.message').length") == 0
