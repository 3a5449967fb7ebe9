"""The worker's own file: tables and statements. `look` is apart from `held`, so that a look never rewrites `told`."""

STEPS = [
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE counter (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
    INSERT INTO counter (name, value) VALUES ('boot', 0), ('outbox', 0);
    CREATE TABLE held (
        source TEXT PRIMARY KEY, epoch BIGINT NOT NULL, spec BYTEA NOT NULL, told BYTEA NOT NULL, seen TEXT NOT NULL,
        batches BIGINT NOT NULL, fetching BIGINT NOT NULL, asked BIGINT NOT NULL, released BIGINT NOT NULL,
        replica BIGINT NOT NULL
    );
    CREATE TABLE look (
        source TEXT PRIMARY KEY, last_looked DOUBLE PRECISION NOT NULL, last_changed DOUBLE PRECISION NOT NULL,
        next_look DOUBLE PRECISION NOT NULL, failures BIGINT NOT NULL, failure TEXT, changes DOUBLE PRECISION NOT NULL,
        observed DOUBLE PRECISION NOT NULL, wait DOUBLE PRECISION NOT NULL,
        shortest DOUBLE PRECISION NOT NULL, longest DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX look_next ON look (next_look, source);
    CREATE INDEX held_released ON held (source) WHERE released = 1;
    CREATE TABLE outbox (n BIGINT PRIMARY KEY, body BYTEA NOT NULL);
    CREATE TABLE recorded (
        task TEXT NOT NULL, attempt BIGINT NOT NULL, number BIGINT NOT NULL, body BYTEA NOT NULL,
        PRIMARY KEY (task, attempt, number)
    );
    CREATE TABLE host (name TEXT PRIMARY KEY, rests_until DOUBLE PRECISION NOT NULL, pace DOUBLE PRECISION NOT NULL)
    """
]

SET_BACK = (
    "UPDATE look SET last_looked = last_looked - :back, last_changed = last_changed - :back, "
    "next_look = next_look - :back",
    "UPDATE host SET rests_until = rests_until - :back",
)

#: higher than any before, also than those of a copy of this file that was used elsewhere
BOOT = "UPDATE counter SET value = MAX(value + 1, :now) WHERE name = 'boot' RETURNING value"

COUNT = "UPDATE counter SET value = value + 1 WHERE name = :name RETURNING value"

WATCH = """
    SELECT spec, seen, batches, fetching, asked, last_looked, last_changed, next_look, failures, failure,
        changes, observed, wait, shortest, longest
    FROM look JOIN held ON held.source = look.source
"""

#: the next ones by time, after a place in that order
NEXT = (
    WATCH
    + """
    WHERE (look.next_look, look.source) > (:after, :source) AND released = 0
    ORDER BY look.next_look, look.source LIMIT :limit
"""
)

#: how many sources wait how long: what the policy has counted
CELLS = """
    SELECT shortest, longest, CAST(FLOOR(LN(wait) / :width) AS BIGINT) AS cell, COUNT(*) AS n, SUM(1 / wait) AS looks
    FROM look WHERE wait > 0 GROUP BY 1, 2, 3
"""

META = "INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

KNOWN = "SELECT epoch, spec, released FROM held WHERE source = :source"

HOLD = """
    INSERT INTO held (source, epoch, spec, told, seen, batches, fetching, asked, released, replica)
    VALUES (:source, :epoch, :spec, :told, '', :batches, 0, 0, 0, :replica)
    ON CONFLICT (source) DO UPDATE SET epoch = excluded.epoch, spec = excluded.spec, told = excluded.told, seen = '',
        batches = excluded.batches, fetching = 0, asked = 0, released = 0, replica = excluded.replica
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

#: one that is held anew comes in where the others are now
ENTER = """
    INSERT INTO look
        (source, last_looked, last_changed, next_look, failures, failure, changes, observed, wait, shortest, longest)
    VALUES (:source, 0, :changed_at, :now, 0, NULL, :changes, :observed, 0, 0, 0)
    ON CONFLICT (source) DO UPDATE SET last_looked = 0, last_changed = excluded.last_changed,
        next_look = excluded.next_look, failures = 0, failure = NULL, changes = excluded.changes,
        observed = excluded.observed, wait = 0, shortest = 0, longest = 0
"""

#: what was planned in an earlier epoch, or as a replica, is nobody's plan any more
NOTE = """
    UPDATE look SET last_looked = :last_looked, last_changed = :last_changed, next_look = :next_look,
        failures = :failures, failure = :failure, changes = :changes, observed = :observed, wait = :wait,
        shortest = :shortest, longest = :longest
    WHERE source = :source AND EXISTS
        (SELECT 1 FROM held WHERE held.source = :source AND held.epoch = :epoch AND held.replica = :replica)
"""

REST = """
    INSERT INTO host (name, rests_until, pace) VALUES (:name, :until, :pace)
    ON CONFLICT (name) DO UPDATE SET rests_until = excluded.rests_until, pace = excluded.pace
"""
