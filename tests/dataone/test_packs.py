"""Wrong bytes are kept aside until the right ones come, and what nobody refers to is swept."""

from pathlib import Path

import msgspec
import pytest

from skep.base.caller import SYSTEM
from skep.dataone import store as module
from skep.dataone.api import Aside, Story
from skep.dataone.testing import Faults, MemberNode
from skep.storage.database import Tx
from skep.testing.documents import EML_21
from tests.dataone.farm import Farm

GRACE = 3_601.0


async def explain(farm: Farm, pid: str) -> Story:
    return await farm.store.explain(SYSTEM, pid)


async def read(farm: Farm, aside: Aside) -> bytes:
    whole = b"".join([chunk async for chunk in farm.store.blobs.open(aside.blob)])
    return whole[aside.start : aside.start + aside.size]


async def blobs(farm: Farm) -> list[str]:
    return [one.id async for one in farm.store.blobs.list()]


async def test_wrong_bytes_are_kept_aside_until_the_right_ones_come(farm: Farm, node: MemberNode) -> None:
    node.put("mangled", b"<b/>", EML_21)
    node.put("short", b"<c/>" * 100, EML_21)
    large = bytes(2_000_000)
    node.put("large", large, EML_21)
    node.put("long", b"<d/>", EML_21)
    wrong = {"mangled": b"</b>", "short": b"<c/>", "large": large[:-1] + b"x", "long": b"<d/>" * 9}
    node.faults = Faults(bytes_of=wrong)
    held = await farm.add(node)
    await farm.visit(held)
    for pid, body in wrong.items():
        (aside,) = (await explain(farm, pid)).aside
        assert aside.node == node.id and "as promised" in aside.reason
        assert await read(farm, aside) == body[: 1 << 18]
    farm.clock.ahead += GRACE
    await farm.store.packs.sweep()
    (aside,) = (await explain(farm, "mangled")).aside
    assert await read(farm, aside) == b"</b>"

    node.faults = Faults()
    node.put("good", b"<a/>", EML_21)
    await farm.visit(held)
    for pid in ("good", "mangled", "short", "large"):
        assert (await explain(farm, pid)).aside == []
    assert await farm.same_as(node)
    farm.clock.ahead += GRACE
    before = len(await blobs(farm))
    assert await farm.store.packs.sweep() > 0
    assert await farm.store.packs.sweep() == 0
    assert len(await blobs(farm)) < before
    assert await farm.same_as(node)


async def test_what_a_kill_left_is_swept_and_nothing_else(farm: Farm, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.write_bytes(b"bytes")
    one, two = [await farm.store.packs.put(pack) for _ in range(2)]
    assert one != two
    await farm.db.write(lambda tx: tx.rows("INSERT INTO pack (blob, at) VALUES (:id, 0)", id="0" * 64))  # never came
    assert await farm.store.packs.sweep() == 1
    assert set(await blobs(farm)) == {one, two}, "somebody may be about to refer to them"
    farm.clock.ahead += GRACE
    await farm.store.blobs.delete(one)  # a sweep was killed here
    assert await farm.store.packs.sweep() == 2
    assert await blobs(farm) == [] == await farm.db.read("SELECT * FROM pack")


async def test_only_so_much_is_kept_aside(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ASIDE", 3)

    async def work(tx: Tx) -> None:
        for n in range(5):
            row = Aside("urn:node:X", "b", 0, 1, "wrong", float(n))
            names = ", ".join(f":{name}" for name in Aside.__struct_fields__)
            sql = f"INSERT INTO quarantine (pid, {', '.join(Aside.__struct_fields__)}) VALUES (:pid, {names})"
            await tx.rows(sql, pid=f"p{n}", **msgspec.structs.asdict(row))

    await farm.db.write(work)
    await farm.store.packs.sweep()
    assert [row["pid"] for row in await farm.db.read("SELECT pid FROM quarantine ORDER BY pid")] == ["p2", "p3", "p4"]
