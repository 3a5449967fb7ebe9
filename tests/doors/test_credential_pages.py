"""The page of credentials, and the button of a source that asks: what a person decides without a command line."""

import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.chromium import Tab
from tests.house.running import RunningSkep
from tests.support.forge import Forge

SECRET = "hunter2-hunter2"
HUB = {"name": "hub", "host": "GitHub.com", "use": "api", "user": "", "public": "yes"}


@pytest.fixture(scope="module")
def skep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    with RunningSkep(tmp_path_factory.mktemp("credential-pages") / "data") as running:
        yield running


def ask(skep: RunningSkep, path: str, form: dict[str, str] | None = None, token: str = "") -> tuple[int, str]:
    """As a browser does, redirects followed."""
    body = urllib.parse.urlencode(form).encode() if form is not None else None
    headers = {"Accept": "text/html", "Authorization": f"Bearer {token or skep.token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(skep.url + path, body, headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def kept(skep: RunningSkep) -> str:
    return "".join(path.read_text() for path in (skep.data / "credentials").glob("*.json"))


def test_set_rotated_and_removed(skep: RunningSkep) -> None:
    status, page = ask(skep, "/credentials", HUB | {"token": SECRET})
    assert status == 200 and "github.com" in page and "list repositories" in page and SECRET not in page
    assert SECRET in kept(skep)
    status, page = ask(skep, "/credentials/hub/rotate", {"token": "another"})
    assert status == 200 and SECRET not in kept(skep) and "another" in kept(skep) and "another" not in page
    assert '"use":"api"' in kept(skep) and '"public":true' in kept(skep)
    status, page = ask(skep, "/credentials/hub/remove", {})
    assert status == 200 and "No credentials yet" in page and kept(skep) == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"host": "no host"}, "is no host"), ({"token": "two words"}, "no blanks"), ({"name": "<b>"}, "is no name")],
)
def test_wrong_input_is_told_and_no_secret_comes_back(skep: RunningSkep, wrong: dict[str, str], said: str) -> None:
    status, page = ask(skep, "/credentials", HUB | {"token": SECRET} | wrong)
    assert status == 400 and said in page and SECRET not in page and "two words" not in page and "<b>" not in page
    assert ask(skep, "/credentials/nothing/rotate", {"token": "x"})[0] == 404
    assert ask(skep, "/credentials/nothing/remove", {})[0] == 404


def test_only_admins(skep: RunningSkep) -> None:
    made = skep.cli("token", "create", "writer", "--scope", "read", "--scope", "write").stdout.split()
    token = next(word for word in made if len(word) > 30)
    assert ask(skep, "/credentials", token=token)[0] == 403
    assert ask(skep, "/credentials", HUB | {"token": SECRET}, token=token)[0] == 403
    assert kept(skep) == "" and "/credentials" not in ask(skep, "/sources", token=token)[1]


def test_a_source_that_asks_is_answered_by_a_button(skep: RunningSkep, door_forge: Forge, tab: Tab) -> None:
    repo, url = door_forge.create("org/asking", {"a": b"1"}), door_forge.url("org/asking")
    skep.cli("source", "add", url, "--wait")
    repo.git("update-ref", "-d", "refs/heads/main")
    skep.cli("source", "fetch", url, "--wait", check=False)
    (source,) = skep.rows("source", "list")
    assert source["state"] == "asking"
    status, page = ask(skep, f"/sources/{source['id']}/accept", {"loss": "another"})
    assert status == 409 and "something else" in page
    ticket = re.search(r"/login\?ticket=\S+", "".join(skep.log))
    assert ticket is not None
    tab.open(skep.url + ticket[0])
    tab.open(f"{skep.url}/sources/{source['id']}")
    picture(tab, "asking")
    tab.submit("form[action$=accept] button")
    skep.cli("source", "fetch", url, "--wait")
    assert skep.rows("source", "show", url)[0]["state"] == "current"


def test_the_page_of_credentials_fits(skep: RunningSkep, tab: Tab) -> None:
    ask(skep, "/credentials", HUB | {"token": SECRET})
    tab.open(f"{skep.url}/credentials")
    tab.value("document.querySelector('details').open = true")
    picture(tab, "credentials")
    tab.size(390, 844, dark=True)
    assert tab.value("document.documentElement.scrollWidth") <= 390
    picture(tab, "credentials-phone")


def picture(tab: Tab, name: str) -> None:
    """For looking at: PICTURES names a folder."""
    if folder := os.environ.get("PICTURES"):
        tab.picture(Path(folder) / f"{name}.png")
