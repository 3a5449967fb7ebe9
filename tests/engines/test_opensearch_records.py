"""What records in a folder do, records on a server do too: the same tests, on a real OpenSearch node."""

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.base.errors import BadQuery, Damaged, Unavailable
from skep.processes.engines import find
from skep.storage.records.base import Ask, Field, Kind, OneOf, Record, Records
from tests.engines import test_records_contract, test_records_lasting
from tests.engines.test_records_contract import PAPERS, RECORDS, ids
from tests.support.opensearch import OpenSearchNode

for contract in (test_records_contract, test_records_lasting):
    globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})

records = test_records_contract.records
_prefixes = (f"records{n}" for n in itertools.count())


@pytest.fixture
def url(opensearch: OpenSearchNode) -> Iterator[str]:
    """Names that nothing else uses."""
    url = f"opensearch://{opensearch.address}/{next(_prefixes)}"
    yield url
    on_server(url, "{prefix}-*", "DELETE")


def on_server(url: str, path: str, method: str = "GET") -> Any:
    """As an operator would ask it, behind Skep's back."""
    address, prefix = url.removeprefix("opensearch://").split("/")
    answer = httpx.request(method, f"http://{address}/{path.format(prefix=prefix)}", timeout=60)
    assert answer.is_success, answer.text
    return answer.json()


async def test_an_index_that_somebody_removed_is_made_anew(records: Records, url: str) -> None:
    await records.put("papers", RECORDS)
    await records.filled("papers")
    assert not await records.check("papers")
    on_server(url, "{prefix}-papers-1", "DELETE")
    for asked in (records.search("papers", Ask("ice")), records.put("papers", RECORDS)):
        with pytest.raises(Damaged, match="gone"):
            await asked
    assert await records.check("papers")
    assert not await records.check("papers")
    assert await records.declare(PAPERS)
    await records.put("papers", RECORDS)
    assert await ids(records, "ice") == ["a", "b", "e"]
    on_server(url, "{prefix}-papers-1/_alias/{prefix}-papers", "DELETE")
    assert await records.declare(PAPERS)
    assert await ids(records, "") == []


async def test_a_server_that_goes_and_comes_back(opensearch: OpenSearchNode, records: Records) -> None:
    await records.put("papers", RECORDS)
    opensearch.stop(signal.SIGKILL)
    try:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await ids(records, "ice")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await records.put("papers", [Record("f", {"title": "ice"})])
    finally:
        opensearch.start()
    await records.put("papers", [Record("f", {"title": "ice"})])
    assert await ids(records, "ice") == ["a", "b", "e", "f"]


async def test_what_a_server_refuses_is_a_bad_query(records: Records) -> None:
    await records.put("papers", RECORDS)
    words = " or ".join(f"w{n}" for n in range(199))
    assert await ids(records, f"{words} or ice") == ["a", "b", "e"]
    stars = "title:*" + "*".join("ab" * 4000) + "*"
    with pytest.raises(BadQuery, match="does not take") as caught:
        await ids(records, stars[:9999])
    assert caught.value.hint


async def test_many_records_and_several_shards(url: str, tmp_path: Path) -> None:
    """More than one request, found all at once."""
    opened: Records = await find("records", url)(f"{url}?shards=3", data=tmp_path)
    kind = Kind("notes", (Field("text", "text"), Field("n", "int", faceted=True)), ("text",))
    assert await opened.declare(kind)
    await opened.put("notes", [Record(f"r{n:05}", {"text": "ice " * 500, "n": n % 7}) for n in range(5000)])
    page = await opened.search("notes", Ask("ice", facets=("n",), sort="-id", start=4990, limit=100))
    assert [one.id for one in page.records] == [f"r{n:05}" for n in reversed(range(10))]
    assert (page.total, dict(page.facets["n"])[0]) == (5000, 715)
    await opened.delete("notes", OneOf("n", (0, 1)))
    assert (await opened.search("notes", Ask())).total == 5000 - 715 - 715
    await opened.close()
