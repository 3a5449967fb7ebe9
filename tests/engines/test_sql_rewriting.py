"""SQL is written once: what each engine is given."""

import pytest

from skep.storage.database import for_sqlite, insert_of_arrays, numbered, statements


def test_names_become_numbers_outside_quotes_and_comments() -> None:
    sql = """SELECT :a, ':b', "x:c", 'it''s :d', :e::text, :a -- :f
             /* :g ; */ FROM t WHERE x = :e"""
    text, names = numbered(sql)
    assert names == ("a", "e")
    assert text == sql.replace(":a", "$1").replace(":e::", "$2::").replace("= :e", "= $2")


def test_casts_follow_their_numbers() -> None:
    assert numbered("SELECT :a + 1, :b, :a", ("::int8", ""))[0] == "SELECT $1::int8 + 1, $2, $1::int8"


def test_a_script_is_divided_outside_quotes() -> None:
    script = "CREATE TABLE a (x TEXT DEFAULT ';');; -- one; two\nINSERT INTO a VALUES ('x;''y'); /* ; */ ; -- end"
    assert statements(script) == ["CREATE TABLE a (x TEXT DEFAULT ';')", "-- one; two\nINSERT INTO a VALUES ('x;''y')"]
    assert statements("") == []


def test_what_sqlite_is_given() -> None:
    assert for_sqlite("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, b BYTEA)") == (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n BIGINT, b BLOB)"
    )
    assert for_sqlite("a bigint not null primary key") == "a INTEGER not null primary key"
    assert for_sqlite("SELECT 1 FROM t LIMIT 1 FOR UPDATE SKIP LOCKED)") == "SELECT 1 FROM t LIMIT 1 )"
    assert for_sqlite("SELECT 'FOR UPDATE' FROM t for\nupdate") == "SELECT 'FOR UPDATE' FROM t "
    assert for_sqlite("INSERT … ON CONFLICT DO UPDATE SET a = 1") == "INSERT … ON CONFLICT DO UPDATE SET a = 1"


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        ("INSERT INTO t (a, b) VALUES (:a, :b)", True),
        ("INSERT INTO t (a, b) VALUES (:x, :y) ON CONFLICT (a) DO NOTHING", True),
        ("INSERT INTO t (a, b) VALUES (:a, :b) ON CONFLICT (a) DO UPDATE SET b = 1", False),
        ("INSERT INTO t (a, b, c) VALUES (:a, :b, 0)", False),
        ("INSERT INTO t (a, b, c) VALUES (:a, :b, :a)", False),
        ("UPDATE t SET a = :a WHERE b = :b", False),
    ],
)
def test_which_inserts_take_arrays(sql: str, plain: bool) -> None:
    text = insert_of_arrays(sql, ("int8", "text"))
    assert (text is not None) is plain
    if text is not None:
        assert text.startswith("INSERT INTO t (a, b) SELECT * FROM unnest($1::int8[], $2::text[])")
