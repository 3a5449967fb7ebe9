"""What the servers under comparison mirror and harvest: the same git repositories, with fixed commit ids, and two
Member Nodes with fixed objects. Names of private things begin with `sec` or hold `hidden`: a leak is easy to see."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skep.dataone.testing import MemberNode
from skep.dataone.types import AccessPolicy, AccessRule
from skep.testing.documents import EML_21, ORE, eml, resource_map
from tests.support.forge import Forge
from tests.support.forge.repository import Repo

NODE_TOKEN = "the-token-of-a-node"
PRIVATE = AccessPolicy((AccessRule(("CN=friend",), ("read",)),))
#: milliseconds since 1970: objects carry fixed dates, so both servers see the same
_DATE = 1_500_000_000_000


@dataclass(frozen=True)
class Upstream:
    forge: Forge
    open_node: MemberNode
    closed_node: MemberNode


@contextmanager
def upstream(folder: Path) -> Iterator[Upstream]:
    with (
        Forge(folder) as forge,
        MemberNode("urn:node:OPEN", token=NODE_TOKEN) as opened,
        MemberNode("urn:node:CLOSED") as closed,
    ):
        _repositories(forge)
        _objects(opened, closed)
        yield Upstream(forge, opened, closed)


def _repositories(forge: Forge) -> None:
    _repository(forge, "pub/alpha", "open")
    _repository(forge, "sec/omega", "hidden")
    forge.create("pub/beta", {"README": b"beta: an open note\n", "lib/b.c": b"int beta(void) { return 2; }\n"})
    for owner, listed in (("pub", "alpha"), ("sec", "omega")):
        forge.create(f"{owner}/list", {"all.yaml": f"- {forge.url(f'{owner}/{listed}')}\n- nonsense\n".encode()})


def _repository(forge: Forge, name: str, word: str) -> Repo:
    repo = forge.create(name)
    repo.commit(
        {
            "README.md": f"# {name}\nThe {word} honey of {name}.\n".encode(),
            f"src/{word}_main.py": f"def {word}_find(hive):\n    return hive['{word}honey']\n".encode(),
            "LICENSE": b"Permission is hereby granted, free of charge, to any person\n",
        },
        message=f"first {word} commit",
    )
    repo.commit({f"docs/{word}.txt": f"{word}honey is in the docs\nsecond line\n".encode()}, message=f"{word} docs")
    repo.tag("v1")
    repo.branch("side")
    repo.commit({f"docs/{word}.txt": f"{word}honey changed\nsecond line\n".encode()}, message=f"{word} change")
    return repo


def _objects(opened: MemberNode, closed: MemberNode) -> None:
    opened.put("open.meta.1", eml("Open glacier"), EML_21, **_dated(1))
    opened.put("open.data.1", b"a,b\n1,2\n", **_dated(2))
    opened.put("open.map.1", resource_map("open.map.1", {"open.meta.1": ["open.data.1"]}), ORE, **_dated(3))
    opened.put("hidden.meta.1", eml("Hidden glacier"), EML_21, access_policy=PRIVATE, **_dated(4))
    closed.put("hidden.meta.2", eml("Hidden moraine"), EML_21, **_dated(5))


def _dated(n: int) -> dict[str, Any]:
    return {"date_uploaded": _DATE + n * 1000, "date_sys_metadata_modified": _DATE + n * 1000}
