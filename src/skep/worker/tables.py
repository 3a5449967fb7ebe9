"""The worker's own file: tables and statements. `look` is apart from `held`, so that a look never rewrites `told`."""

STEPS = [
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE counter (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
    INSERT INTO counter (name, value) VALUES ('boot', 0), ('outbox', 0);
    CREATE TABLE held (
        source TEXT PRIMARY KEY, epoch BIGINT NOT NULL, spec BYTEA NOT NULL, told BYTEA NOT NULL, seen TEXT NOT NULL,
        batches BIGINT NOT NULL, fetching BIGINT NOT NULL, asked BIGINT NOT NULL, released BIGINT NOT NULL
    );
    CREATE TABLE look (
        source TEXT PRIMARY KEY, last_looked DOUBLE PRECISION NOT NULL, last_changed DOUBLE PRECISION NOT NULL,
        next_look DOUBLE PRECISION NOT NULL, failures BIGINT NOT NULL, failure TEXT
    );
    CREATE TABLE outbox (n BIGINT PRIMARY KEY, body BYTEA NOT NULL);
    CREATE TABLE host (name TEXT PRIMARY KEY, rests_until DOUBLE PRECISION NOT NULL)
    """
]

COUNT = "UPDATE counter SET value = value + 1 WHERE name = :name RETURNING value"

WATCHES = """
    SELECT held.source, spec, seen, batches, fetching, asked, last_looked, last_changed, next_look, failures, failure
    FROM held LEFT JOIN look ON look.source = held.source WHERE released = :released
"""

KNOWN = "SELECT epoch, spec, released FROM held WHERE source = :source"

HOLD = """
    INSERT INTO held (source, epoch, spec, told, seen, batches, fetching, asked, released)
    VALUES (:source, :epoch, :spec, :told, '', :batches, 0, 0, 0)
    ON CONFLICT (source) DO UPDATE SET epoch = excluded.epoch, spec = excluded.spec, told = excluded.told, seen = '',
        batches = excluded.batches, fetching = 0, asked = 0, released = 0
"""

#: the same epoch again: what was told stays; a mirror that was to go, or another address, is fetched anew
HOLD_AGAIN = """
    UPDATE held SET spec = :spec, seen = CASE WHEN :anew = 1 THEN '' ELSE seen END, released = 0 WHERE source = :source
"""

TELL = """
    UPDATE held SET told = COALESCE(:told, told), seen = :seen, batches = :batches, fetching = :fetching, asked = :asked
    WHERE source = :source AND epoch = :epoch AND released = 0 RETURNING source
"""

OUTBOX = "INSERT INTO outbox (n, body) VALUES (:n, :body)"

NOTE = """
    INSERT INTO look (source, last_looked, last_changed, next_look, failures, failure)
    VALUES (:source, :last_looked, :last_changed, :next_look, :failures, :failure)
    ON CONFLICT (source) DO UPDATE SET last_looked = excluded.last_looked, last_changed = excluded.last_changed,
        next_look = excluded.next_look, failures = excluded.failures, failure = excluded.failure
"""
