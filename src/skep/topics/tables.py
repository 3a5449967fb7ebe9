"""The tables of topics and readers."""

import re

from skep.engines.db.base import Row, inserting, struct_of
from skep.errors import BadInput
from skep.model.topic import Topic

STEPS = [
    """
    CREATE TABLE topic (
        name TEXT PRIMARY KEY, owner TEXT NOT NULL, partitions BIGINT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
        retain_seconds DOUBLE PRECISION, retain_bytes BIGINT
    );
    CREATE TABLE place (
        reader TEXT NOT NULL, topic TEXT NOT NULL, partition BIGINT NOT NULL, next_offset BIGINT NOT NULL,
        member TEXT, generation BIGINT NOT NULL, PRIMARY KEY (reader, topic, partition)
    );
    CREATE INDEX place_topic ON place (topic);
    CREATE TABLE reader_member (
        reader TEXT NOT NULL, topic TEXT NOT NULL, member TEXT NOT NULL, until DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (reader, topic, member)
    );
    CREATE TABLE queue_end (role TEXT NOT NULL, id BIGINT NOT NULL, topic TEXT NOT NULL, PRIMARY KEY (role, id));
    CREATE TABLE queue_count (role TEXT PRIMARY KEY, next BIGINT NOT NULL);
    INSERT INTO queue_count (role, next) VALUES ('producer', 0), ('consumer', 0)
    """
]

_PLACE = inserting(
    "place",
    ("reader", "topic", "partition", "next_offset", "generation"),
    "ON CONFLICT (reader, topic, partition)",
)
#: a place that is there stays as it is
FIRST_PLACE = f"{_PLACE} DO NOTHING"
#: what follows says when it moves
MOVE_PLACE = f"{_PLACE} DO UPDATE SET next_offset = excluded.next_offset"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_WORDS = "letters, digits, dot, dash and underscore, at most 200 characters, a letter or digit first"


def valid_name(name: str, what: str = "topic") -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name[:60]!r} is not a name for a {what}", hint=_WORDS)
    return name


def topic_of(row: Row) -> Topic:
    return struct_of(Topic, row)
