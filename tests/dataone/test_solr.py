"""Solr's parameters and answers, without a server."""

import json
from datetime import UTC, datetime

import pytest

from skep.base.errors import BadInput
from skep.dataone.encoding import moment
from skep.dataone.solr import Answer, Asked, asked, render
from skep.storage.records.base import Found

NOW = datetime(2024, 3, 31, 12, 34, 56, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOW", "2024-03-31T12:34:56Z"),
        ("NOW-1DAY", "2024-03-30T12:34:56Z"),
        ("NOW-36HOURS", "2024-03-30T00:34:56Z"),
        ("NOW-1MONTH", "2024-02-29T12:34:56Z"),
        ("NOW+1YEAR/DAY", "2025-03-31T00:00:00Z"),
        ("NOW/MONTH-1SECOND", "2024-02-29T23:59:59Z"),
        ("NOW/YEAR", "2024-01-01T00:00:00Z"),
        ("NOW/HOUR+90MINUTES", "2024-03-31T13:30:00Z"),
        ("2000-02-29T00:00:00Z+1YEAR", "2001-02-28T00:00:00Z"),
        ("2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"),
        ("2000", "2000"),
        ("NOW-1FORTNIGHT", "NOW-1FORTNIGHT"),
    ],
)
def test_moments(text: str, expected: str) -> None:
    assert moment(text, NOW) == expected


@pytest.mark.parametrize("text", ["NOW+999999YEARS", "NOW-999999DAYS-999999DAYS", "2001-99-99T00:00:00Z+1DAY"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(BadInput):
        moment(text, NOW)


def ask(**params: str) -> Asked:
    return asked([(name.replace("_", "."), value) for name, value in params.items()], NOW)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", ""),
        ("dateUploaded desc", "-dateUploaded"),
        ("dateUploaded desc, title asc,id DESC", "-dateUploaded,titlestr,-id"),
        ("score desc, id asc", ""),
        ("size asc,score desc,id asc", "size"),
    ],
)
def test_orders(sort: str, expected: str) -> None:
    assert ask(sort=sort).sort == expected


def test_what_is_not_offered_is_said() -> None:
    for params in (
        {"sort": "id"},
        {"sort": "id up"},
        {"cursorMark": "*"},
        {"wt": "php"},
        {"facet": "on", "facet_limit": "-2"},
        {"stats": "true"},
        {"group": "true"},
        {"hl": "true"},
        {"facet_missing": "true"},
        {"facet_offset": "1"},
        {"json_nl": "map"},
        {"fl": "id,name:title"},
        {"facet_range": "size"},
        {"f_origin_facet_limit": "1"},
        {"facet_matches": "A.*"},
        {"facet_excludeTerms": "Ada"},
        {"q_op": "OR"},
        {"q": "{!join}x"},
        {"q": "title:"},
    ):
        with pytest.raises(BadInput):
            ask(**params)
    assert ask(stats="false", group="false", q_op="AND", json_nl="flat").text == "(identifier:*)"


COUNTED = [("Zoe", 5), ("ada", 3), ("Ada", 2), ("bob", 1)]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"facet_limit": "-1"}, ["Zoe", "ada", "Ada", "bob"]),
        ({"facet_limit": "1"}, ["Zoe"]),
        ({"facet_limit": "0"}, []),
        ({"facet_mincount": "3"}, ["Zoe", "ada"]),
        ({"facet_sort": "index", "facet_limit": "3"}, ["Ada", "Zoe", "ada"]),
        ({"facet_prefix": "A"}, ["Ada"]),
        ({"facet_contains": "da", "facet_limit": "1"}, ["ada"]),
        ({"facet_contains": "ZO", "facet_contains_ignoreCase": "true"}, ["Zoe"]),
    ],
)
def test_which_values_are_counted(params: dict[str, str], expected: list[str]) -> None:
    found = ask(facet="true", facet_field="origin", **params).facets
    assert [value for value, _ in found.shown(COUNTED)] == expected
    assert found.size == (
        1_000 if params.keys() & {"facet_sort", "facet_prefix", "facet_contains"} else max(1, found.limit)
    )


HITS = [
    Found("a,1", {"origin": ["Doe, J.", "Roe"], "beginDate": 0.0, "size": 7, "isPublic": True, "state": "1"}, 1.5),
    Found('b"2', {"title": "Ice\ncore", "northBoundCoord": 1.5, "southBoundCoord": -1.0}, 0.5),
]


def shown(**params: str) -> str:
    media, body = render(ask(**params), Answer(HITS, 2, {}, {}, 0))
    assert media == ("text/csv" if params["wt"] == "csv" else "application/json")
    return body.decode()


def test_csv() -> None:
    assert shown(wt="csv", fl="id,origin,title,isPublic,beginDate,absent") == (
        "id,origin,title,isPublic,beginDate,absent\n"
        '"a,1","Doe\\, J.,Roe",,true,1970-01-01T00:00:00Z,\n'
        '"b""2",,"Ice\ncore",,,\n'
    )
    header = shown(wt="csv").splitlines()[0].split(",")
    assert header == ["id", "origin", "beginDate", "size", "isPublic", "title", "northBoundCoord", "southBoundCoord"]


def test_globs_choose_fields() -> None:
    docs = json.loads(shown(wt="json", fl="id *BoundCoord"))["response"]["docs"]
    assert docs == [{"id": "a,1"}, {"id": 'b"2', "northBoundCoord": 1.5, "southBoundCoord": -1.0}]
    assert json.loads(shown(wt="json", fl="s*"))["response"]["docs"] == [{"size": 7}, {"southBoundCoord": -1.0}]
    assert json.loads(shown(wt="json", fl="score"))["response"]["docs"] == [{"score": 1.5}, {"score": 0.5}]
