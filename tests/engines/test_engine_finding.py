"""Engines are found by scheme, also those of other packages, and only the chosen one is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from skep.base.errors import BadInput
from skep.processes.engines import Kind, find
from skep.storage.postgres import open_postgres
from skep.storage.sqlite import open_sqlite


def test_by_scheme() -> None:
    assert find("db", "sqlite:/somewhere") is open_sqlite
    assert find("db", "postgresql://h/d") is open_postgres
    assert find("db", "postgres://h/d") is open_postgres


@pytest.mark.parametrize("kind", ["db", "log", "blobs"])
@pytest.mark.parametrize("url", ["mysql://root:secret@h/d", "sqlite", "", ":"])
def test_an_unknown_scheme_names_the_known_ones(kind: Kind, url: str) -> None:
    with pytest.raises(BadInput) as caught:
        find(kind, url)
    assert "secret" not in caught.value.message + caught.value.hint
    assert {"db": "postgresql:", "log": "db:", "blobs": "file:"}[kind] in caught.value.hint


def outside(folder: Path, line: str) -> None:
    info = folder / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[skep.db]\n{line}\n")


async def test_an_engine_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outside_engine.py").write_text("async def open_it(url, *, data, durability): return url, durability\n")
    outside(tmp_path, "outside = outside_engine:open_it")
    monkeypatch.syspath_prepend(tmp_path)
    assert await find("db", "outside:x")("outside:x", data=tmp_path, durability="full") == ("outside:x", "full")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.delitem(sys.modules, "skep.storage.postgres")
    with pytest.raises(BadInput) as caught:
        find("db", "postgresql://h/d")
    assert caught.value.hint == "pip install 'skep[postgres]'"


def test_only_the_chosen_engine_is_imported() -> None:
    code = "import sys; from skep.processes.engines import find; find('db', 'sqlite:'); print('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"
