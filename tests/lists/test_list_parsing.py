"""Files of a list, good and bad: what becomes an entry, and what is said of the rest."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.config.settings import Settings
from skep.sources.catalogue import Address
from skep.sources.git.source_type import GitAddresses
from skep.sources.lists.list_file import BadYaml, Entry, Parsed, parse, parse_defaults, read
from skep.sources.model import SourceSettings
from skep.sources.service import settings_of

ADDRESSES = GitAddresses(Settings())


def address(url: str) -> Address:
    ADDRESSES.check(url, local=False)
    canonical = ADDRESSES.canonical(url)
    return Address(canonical, ADDRESSES.clean(url), ADDRESSES.name(canonical))


def settings(values: Mapping[str, Any]) -> SourceSettings:
    found = settings_of(values)
    ADDRESSES.check_settings(found)
    return found


def parsed(text: str, defaults: str = "") -> Parsed:
    return parse("l/linux", text.encode(), parse_defaults(defaults.encode())[0], address, settings)


def only(text: str, defaults: str = "") -> Entry:
    found = parsed(text, defaults)
    assert not found.problems, found.problems
    (entry,) = found.entries
    return entry


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("- https://example.org/a/b.git\n", "https://example.org/a/b"),
        ("- url: https://example.org/a/b\n", "https://example.org/a/b"),
        ("linux: {url: https://example.org/a/b}\n", "linux"),
        ("linux: https://example.org/a/b\n", "linux"),
        ("linux:\n  url:\n  - https://example.org/a/b\n  - https://example.org/other\n", "linux"),
        ("url: [https://example.org/a/b]\n", "l/linux"),
        ("https://example.org/a/b:\n  workers: []\n", "https://example.org/a/b"),
        ("- https://example.org/a/b:\n", "https://example.org/a/b"),
        ("https://example.org/a/b\n", "https://example.org/a/b"),
    ],
)
def test_every_way_to_write_an_entry(text: str, name: str) -> None:
    entry = only(text)
    assert (entry.name, entry.address.canonical) == (name, "https://example.org/a/b")


def test_keys_become_labels_settings_and_pins() -> None:
    entry = only(
        "x: {url: https://example.org/x, team: infra, hot: true, cold: false, lang: [c, go], labels: [one],"
        " workers: [w1, 2], poll_min: 30, settings: {force_push: ask}, visibility: private}"
    )
    assert entry.labels == ("hot", "lang=c", "lang=go", "one", "team=infra")
    assert entry.settings == SourceSettings(poll_min=30, force_push="ask")
    assert (entry.workers, entry.visibility, entry.line) == (("w1", "2"), "private", 1)


@pytest.mark.parametrize(
    ("given", "left", "line"),
    [
        ("poll_min: soon", SourceSettings(poll_max=9), 3),
        ("poll_min: -1", SourceSettings(poll_max=9), 3),
        ("refs: ['refs/*/x/*']", SourceSettings(poll_max=9), 3),
        ("force_push: perhaps", SourceSettings(poll_max=9), 3),
        ("settings: {unheard: 1, poll_min: 5}", SourceSettings(poll_min=5, poll_max=9), 3),
        ("poll_min: 10", SourceSettings(poll_max=9), 3),
    ],
)
def test_a_wrong_setting_is_a_problem_of_its_line(given: str, left: SourceSettings, line: int) -> None:
    found = parsed(f"x:\n  url: https://example.org/x\n  {given}\n  force_push: ask\n", "poll_max: 9\n")
    if "force_push" in given:
        assert found.entries[0].settings == left
    else:
        assert found.entries[0].settings == left.over(SourceSettings(force_push="ask"))
    assert line in [problem.line for problem in found.problems] and "not used" in str(found.problems)


def test_the_entry_wins_over_defaults() -> None:
    entry = only("x: {url: https://example.org/x, team: kernel}", "team: infra\nhot: true\nworkers: [w1]\n")
    assert (entry.labels, entry.workers) == (("hot", "team=kernel"), ("w1",))
    assert only("- https://example.org/x", "team: infra").labels == ("team=infra",)


def test_a_bad_entry_is_named_with_its_line_and_harms_no_other() -> None:
    found = parsed(
        "- https://example.org/good\n- ftp://example.org/x\n- file:///etc\n- [a]\n- {url: 7}\n- http://169.254.169.254/x\n"
        "- https://example.org/good.git\n- {url: https://example.org/y, deep: {a: b}}\n"
    )
    assert [entry.address.name for entry in found.entries] == ["example.org/good", "example.org/y"]
    assert [problem.line for problem in found.problems] == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"a: [1,\nb: }", 2, "not YAML"),
        (b"x: 1\ny: \xff", 2, "UTF-8"),
        (b"a: &a [x]\nb: *a", 2, "aliases"),
        (b"a: !!python/object/apply:os.system [id]", 1, "tags"),
        (b"--- a\n--- b", 2, "one document"),
        (b"[" * 100_000, 1, "deeper"),
        (b"- " * 100_000, 1, "deeper"),
        (b"? [a]\n: b", 1, "a key"),
        (b"#" + b"x" * 2_000_000, 1, "bytes"),
        (b"a: \x01", 1, "not YAML"),
    ],
)
def test_a_file_that_cannot_be_used(data: bytes, line: int, said: str) -> None:
    with pytest.raises(BadYaml, match=said) as raised:
        read(data)
    assert raised.value.problem.line == line
    assert parse("x", data, {}, address, settings).entries == []


@given(st.text(alphabet=st.sampled_from(":-[]{}&*!|>'\"\n \tax#?,%@/.https")))
def test_no_text_breaks_the_parser(text: str) -> None:
    parse("x.yaml", text.encode(), {}, address, settings)
    parse_defaults(text.encode())
