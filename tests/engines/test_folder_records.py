"""What only the embedded engine of records has to refuse, and damage to its files."""

from pathlib import Path

import pytest

from skep.base.errors import BadInput, SkepError
from skep.storage.records import tantivy_index
from skep.storage.records.base import Ask, Field, Kind, Record, Records
from skep.storage.records.tantivy_index import FolderRecords
from tests.engines import test_records_contract
from tests.engines.test_records_contract import RECORDS, ids
from tests.engines.test_records_lasting import reopen

url, records = test_records_contract.url, test_records_contract.records

KIND = Kind("things", (Field("name", "text"), Field("one", "int"), Field("two", "int")), ("name",))


async def test_too_many_equal_records_are_not_sorted_wrongly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tantivy_index, "MOST_DEPTH", 4)
    records = FolderRecords(tmp_path)
    await records.declare(KIND)
    await records.put("things", [Record(f"r{n}", {"one": n // 3, "two": -n}) for n in range(9)])
    page = await records.search("things", Ask(sort="one,two", limit=3))
    assert ([one.id for one in page.records], page.total) == (["r2", "r1", "r0"], 9)
    with pytest.raises(BadInput, match="the same 'one'"):
        await records.search("things", Ask(sort="one,two", limit=4))
    await records.close()


@pytest.mark.parametrize("how", ["cut", "flip", "remove"])
@pytest.mark.parametrize("suffix", [".store", ".term", ".idx", "meta.json", "fields"])
async def test_damage_is_noticed_and_set_aside(records: Records, tmp_path: Path, suffix: str, how: str) -> None:
    await records.put("papers", RECORDS)
    await records.filled("papers")
    await records.close()
    folder = tmp_path / "records" / "papers"
    path = next(path for path in folder.rglob("*") if path.name.endswith(suffix))
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 0x55
    path.unlink()
    if how != "remove":
        path.write_bytes(body[: len(body) // 2] if how == "cut" else body)
    again, fill = await reopen(records, "file:", tmp_path)
    assert fill
    await again.put("papers", RECORDS)
    assert await ids(again, "ice") == ["a", "b", "e"]
    await again.close()


async def test_damage_while_open(records: Records, tmp_path: Path) -> None:
    await records.put("papers", RECORDS)
    await records.filled("papers")
    assert not await records.check("papers")
    path = next((tmp_path / "records" / "papers" / "index").glob("*.store"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert await records.check("papers")
    assert not await records.check("papers")
    await records.put("papers", RECORDS[:1])
    assert await ids(records, "ice") == ["a"]


async def test_a_failing_disk_is_told(records: Records, tmp_path: Path) -> None:
    """No error of tantivy's own leaks."""
    (tmp_path / "records" / "papers").rename(tmp_path / "gone")
    with pytest.raises(SkepError):
        await records.put("papers", RECORDS)
