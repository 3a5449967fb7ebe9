"""What only PostgreSQL has: a network between, other clients, and a server that goes away."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from skep.base.errors import BadInput, Conflict, Damaged, NoSpace, SkepError, TooLarge, Unavailable
from skep.storage.database import Tx
from skep.storage.postgres import TRIES, Postgres, hosts, open_postgres
from tests.support.postgres import fresh_database


@pytest.fixture
async def url(postgres_url: str) -> AsyncIterator[str]:
    async with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture
async def pg(url: str) -> AsyncIterator[Postgres]:
    db = await open_postgres(url, data=Path(), durability="delayed")
    await db.migrate("test", ["CREATE TABLE t (n BIGINT PRIMARY KEY, name TEXT, weight DOUBLE PRECISION)"])
    yield db
    await db.close()


async def cut_connections(url: str) -> None:
    """As a restarting server or a router does."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE pid <> pg_backend_pid() AND datname = current_database()"""
    )
    await connection.close()


async def test_types_are_strict(pg: Postgres) -> None:
    async def work(tx: Tx, name: object, weight: object) -> None:
        await tx.rows("INSERT INTO t (n, name, weight) VALUES (1, :name, :weight)", name=name, weight=weight)  # type: ignore[arg-type]

    with pytest.raises(BadInput, match="expected str, got int"):
        await pg.write(lambda tx: work(tx, 5, 1.0))
    await pg.write(lambda tx: work(tx, "five", 1))
    assert await pg.read("SELECT name, weight FROM t") == [{"name": "five", "weight": 1.0}]


async def test_text_that_postgresql_cannot_hold(pg: Postgres) -> None:
    with pytest.raises(BadInput):
        await pg.read("SELECT n FROM t WHERE name = :name", name="a\0b")


async def test_casts_and_quotes_are_left_alone(pg: Postgres) -> None:
    rows = await pg.read("""SELECT ':a'::text AS "x:b", 'it''s :c' AS y, :n::bigint AS n -- :d""", n=3)
    assert rows == [{"x:b": ":a", "y": "it's :c", "n": 3}]


async def test_runtime_state_does_not_wait_for_the_disk(pg: Postgres) -> None:
    async def setting(tx: Tx) -> str:
        return str((await tx.rows("SHOW synchronous_commit"))[0]["synchronous_commit"])

    assert await pg.write(setting, runtime=True) == "off"
    assert await pg.write(setting) == "on"


async def test_lost_connections_are_replaced(pg: Postgres, url: str) -> None:
    for n in range(3):

        async def work(tx: Tx, n: int = n) -> None:
            await tx.rows("INSERT INTO t (n) VALUES (:n)", n=n)

        await pg.write(work)
        await cut_connections(url)
    assert [row["n"] for row in await pg.read("SELECT n FROM t ORDER BY n")] == [0, 1, 2]


async def test_a_connection_lost_inside_a_transaction_is_tried_again(pg: Postgres, url: str) -> None:
    runs = 0

    async def work(tx: Tx) -> None:
        nonlocal runs
        runs += 1
        await tx.rows("INSERT INTO t (n) VALUES (1)")
        if runs == 1:
            await cut_connections(url)
        await tx.rows("INSERT INTO t (n) VALUES (2)")

    await pg.write(work)
    assert runs == 2
    assert len(await pg.read("SELECT n FROM t")) == 2


async def test_deadlocks_are_resolved(pg: Postgres) -> None:
    async def fill(tx: Tx) -> None:
        await tx.rows("SET LOCAL deadlock_timeout = 10")
        await tx.many("INSERT INTO t (n, weight) VALUES (:n, 0)", [{"n": 1}, {"n": 2}])

    await pg.write(fill)
    both = asyncio.Barrier(2)
    met: list[int] = []

    async def cross(first: int) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows("SET LOCAL deadlock_timeout = 10")
            await tx.rows("UPDATE t SET weight = weight + 1 WHERE n = :n", n=first)
            if first not in met:
                met.append(first)
                await both.wait()
            await tx.rows("UPDATE t SET weight = weight + 1 WHERE n = :n", n=3 - first)

        await pg.write(work)

    await asyncio.gather(cross(1), cross(2))
    assert await pg.read("SELECT weight FROM t") == [{"weight": 2.0}, {"weight": 2.0}]


async def test_an_error_of_the_work_itself_is_not_taken_for_the_servers(pg: Postgres) -> None:
    async def work(tx: Tx) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await pg.write(work)


async def test_bells_of_another_process_and_after_a_cut(pg: Postgres, url: str) -> None:
    other = await open_postgres(url, data=Path(), durability="full")

    async def ringing(tx: Tx) -> None:
        tx.ring("x" * 200)
        tx.ring("y")

    async with pg.listen("x" * 200) as long, pg.listen("y") as short:
        await other.write(ringing)
        assert await long.wait(30)
        assert await short.wait(30)
        await cut_connections(url)
        assert await long.wait(30)  # it rings by itself: something may have been missed
        await short.wait(0)
        await other.write(ringing)
        assert await short.wait(30)
    await other.close()


async def test_two_processes_migrate_at_once(url: str) -> None:
    steps = ["CREATE TABLE a (n BIGINT)", "INSERT INTO a (n) VALUES (1)"]
    both = [await open_postgres(url, data=Path(), durability="full") for _ in range(2)]
    await asyncio.gather(*(db.migrate("room", steps) for db in both))
    assert await both[0].read("SELECT n FROM a") == [{"n": 1}]
    for db in both:
        await db.close()


@pytest.mark.parametrize(
    ("state", "kind", "runs"),
    [
        ("53100", NoSpace, 1),
        ("53200", Unavailable, 1),
        ("23514", Conflict, 1),
        ("54000", TooLarge, 1),
        ("XX001", Damaged, 1),
        ("42501", SkepError, 1),
        ("40001", Conflict, TRIES),
    ],
)
async def test_what_the_servers_errors_mean(pg: Postgres, state: str, kind: type[SkepError], runs: int) -> None:
    ran = 0

    async def work(tx: Tx) -> None:
        nonlocal ran
        ran += 1
        await tx.rows(f"DO $$ BEGIN RAISE EXCEPTION 'so be it' USING ERRCODE = '{state}'; END $$")

    with pytest.raises(SkepError) as caught:
        await pg.write(work)
    assert type(caught.value) is kind
    assert ran == runs


async def test_conflicts_name_the_constraint(pg: Postgres) -> None:
    async def work(tx: Tx) -> None:
        await tx.many("INSERT INTO t (n) VALUES (:n)", [{"n": 1}, {"n": 1}])

    with pytest.raises(Conflict, match="t_pkey"):
        await pg.write(work)


async def test_nobody_listening_is_told_without_the_password() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable) as caught:
            await open_postgres(f"postgresql://u:geheim@127.0.0.1:{port}/d", data=Path(), durability="full")
    told = caught.value.message + caught.value.hint
    assert f"127.0.0.1:{port}" in told
    assert "geheim" not in told


async def test_a_wrong_password_or_name_is_told(postgres_url: str) -> None:
    place = postgres_url.rpartition("@")[2]
    wrong = [f"postgresql://skep:geheim@{place}", postgres_url.rpartition("/")[0] + "/nowhere"]
    for url in wrong:
        with pytest.raises(Unavailable) as caught:
            await open_postgres(url, data=Path(), durability="full")
        assert "geheim" not in caught.value.message + caught.value.hint
        assert place.partition("/")[0] in caught.value.hint


@pytest.mark.parametrize("rest", ["u:geheim@h:port/d", "u:geheim@[::1/d", "h/d?sslmode=geheim"])
async def test_a_url_that_is_none(rest: str) -> None:
    with pytest.raises(BadInput) as caught:
        await open_postgres(f"postgresql://{rest}", data=Path(), durability="full")
    assert "geheim" not in caught.value.message + caught.value.hint


def test_hosts_never_show_a_password() -> None:
    assert hosts("postgresql://u:geheim@h1:5432,h2/d") == "h1:5432,h2"
    assert hosts("postgresql:///d") == "the local socket"
    for url in ("postgresql://u:ge/heim@h/d", "postgresql://u:ge?heim@h/d", "postgresql://u:ge#heim@h/d"):
        assert hosts(url) == "the server in its URL"


async def test_of_several_hosts_the_living_one_is_used(url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        user, at, place = url.rpartition("@")
        several = f"{user}{at}127.0.0.1:{taken.getsockname()[1]},{place}"
        db = await open_postgres(several.replace("postgresql:", "postgres:"), data=Path(), durability="full")
        assert await db.read("SELECT 1 AS one") == [{"one": 1}]
        await db.close()
