"""The list of object formats: what is shipped, what is learned, and what follows from it."""

import pytest

from skep.base.errors import SkepError
from skep.dataone.client import NodeClient, Refused
from skep.dataone.formats import FormatList, Formats
from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import FormatType, ObjectFormat, ObjectFormatList
from skep.net.guard import Guard
from skep.net.http import Exchange
from skep.sources.git.ls_refs import ca_bundle
from tests.dataone.cn_house import Served
from tests.dataone.farm import Farm

NEW = "https://formats.example/new"


def listed(type: FormatType = "METADATA") -> ObjectFormatList:
    return ObjectFormatList((ObjectFormat(NEW, "New", type),), 1, 0, 1)


async def test_objects_of_a_format_that_turns_out_to_be_metadata_are_fetched(farm: Farm, node: MemberNode) -> None:
    node.put("a", b"<a/>", NEW)
    held = await farm.add(node)
    await farm.visit(held)
    assert await farm.content("a") is None
    await farm.store.format_list.take(listed())
    await farm.visit(held)
    assert await farm.content("a") == b"<a/>"
    one = await farm.store.get("a")
    assert one is not None and one.kind == "METADATA"
    asked = len(node.asked("/object/a"))
    await farm.store.format_list.take(listed())
    await farm.visit(held)
    assert len(node.asked("/object/a")) == asked, "once"


async def test_other_processes_learn_it_too(farm: Farm) -> None:
    other = Formats()
    reader = FormatList(farm.db, farm.clock, other)
    await reader.start()
    assert other.type_of(NEW) == "DATA"
    await farm.store.format_list.take(listed())
    await reader.load()
    assert (other.type_of(NEW), other.learned) == ("METADATA", {NEW: "METADATA"})
    assert len(other.all) == 161
    await farm.store.format_list.take(ObjectFormatList())
    await farm.store.format_list.take(listed("RESOURCE"))
    await reader.load()
    assert other.type_of(NEW) == "RESOURCE"


async def test_the_list_of_another_node_is_taken_over_and_a_bad_one_is_not(farm: Farm, cn: Served) -> None:
    cn.core.dataone.store.formats.learn(listed().object_format)
    http = Exchange(ca=ca_bundle(), timeout=60.0, largest=1 << 20)
    guard = Guard(farm.settings, farm.clock, local=False)
    try:
        found = await NodeClient(http, guard, farm.clock, cn.base, "v2", None).formats()
        await farm.store.format_list.take(found)
        assert farm.store.formats.learned == {NEW: "METADATA"}
        with MemberNode(faults=Faults(html=200)) as node, pytest.raises(Refused):
            await NodeClient(http, guard, farm.clock, node.base, "v2", None).formats()
        with pytest.raises(SkepError):
            await NodeClient(http, guard, farm.clock, "http://10.0.0.1/cn", "v2", None).formats()
    finally:
        http.close()
