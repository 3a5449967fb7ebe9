"""The tables of the fleet: who is a member, and who holds which source, and who else has a copy of it."""

STEPS = [
    """
    CREATE TABLE member (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, state TEXT NOT NULL, status TEXT NOT NULL,
        boot BIGINT NOT NULL, offer TEXT NOT NULL, mirror BIGINT NOT NULL, capacity DOUBLE PRECISION NOT NULL,
        draining BIGINT NOT NULL, joined_at DOUBLE PRECISION NOT NULL, last_alive DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE member_event (
        n BIGINT PRIMARY KEY, member TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, what TEXT NOT NULL
    );
    CREATE INDEX member_event_member ON member_event (member, n);
    CREATE TABLE member_count (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
    INSERT INTO member_count (id, n) VALUES (0, 0);
    CREATE TABLE holding (source TEXT PRIMARY KEY, member TEXT, pins TEXT NOT NULL);
    CREATE INDEX holding_member ON holding (member);
    CREATE TABLE source_replica (
        source TEXT NOT NULL, member TEXT NOT NULL, complete BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (source, member)
    );
    CREATE INDEX source_replica_member ON source_replica (member);
    CREATE INDEX source_replica_under_way ON source_replica (at) WHERE complete = 0
    """
]

#: says hello
JOIN = """
    INSERT INTO member (id, name, role, state, status, boot, offer, mirror, capacity, draining, joined_at, last_alive)
    VALUES (:id, :name, :role, 'alive', 'attached', :boot, :offer, :mirror, :capacity, 0, :now, :now)
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = 'alive', status = 'attached', boot = excluded.boot,
        offer = excluded.offer, mirror = excluded.mirror, capacity = excluded.capacity, last_alive = excluded.last_alive
"""
