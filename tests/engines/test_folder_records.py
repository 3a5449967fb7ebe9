"""What only the embedded engine of records has to refuse."""

from pathlib import Path

import pytest

from skep.engines.records import shelf
from skep.engines.records.base import Ask, Field, Kind, Record
from skep.engines.records.folder import FolderRecords
from skep.errors import BadInput

KIND = Kind("things", (Field("name", "text"), Field("one", "int"), Field("two", "int")), ("name",))


async def test_too_many_equal_records_are_not_sorted_wrongly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "MOST_DEPTH", 4)
    records = FolderRecords(tmp_path)
    await records.declare(KIND)
    await records.put("things", [Record(f"r{n}", {"one": n // 3, "two": -n}) for n in range(9)])
    page = await records.search("things", Ask(sort="one,two", limit=3))
    assert ([one.id for one in page.records], page.total) == (["r2", "r1", "r0"], 9)
    with pytest.raises(BadInput, match="the same 'one'"):
        await records.search("things", Ask(sort="one,two", limit=4))
    await records.close()
