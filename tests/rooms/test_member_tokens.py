"""Tokens that members join with: one member each, unless shared; wrong, expired, revoked and another's are refused."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound, SkepError
from tests.rooms.house import WORKER_TOKEN, House


async def join(house: House, member: str, token: str, role: str = "worker") -> None:
    await house.fleet.join(member, token, 1, role, local=False)


async def test_a_token_is_of_the_first_that_uses_it(house: House) -> None:
    made = await house.fleet.tokens.create(SYSTEM, "attic", ("worker", "manager"))
    await join(house, "wrk_a", made.token)
    await join(house, "man_a", made.token, "manager")  # the same process in its other role
    await join(house, "wrk_a", made.token)
    with pytest.raises(NotAllowed, match="another member"):
        await join(house, "wrk_b", made.token)
    (listed,) = await house.fleet.tokens.list(SYSTEM)
    assert (listed.name, listed.members, made.token in str(listed)) == ("attic", ["a"], False)
    other = await house.fleet.tokens.create(SYSTEM)
    with pytest.raises(Conflict, match="has joined with another token"):
        await join(house, "wrk_a", other.token)
    await house.fleet.tokens.revoke(SYSTEM, made.info.id)
    await join(house, "wrk_a", other.token)  # that is how a token is replaced
    audit = await house.db.read("SELECT caller, verb FROM audit WHERE verb LIKE 'member_token%'")
    assert sorted(row["verb"].partition(".")[2] for row in audit) == ["bind", "bind", "create", "create", "revoke"]


async def test_what_is_refused(house: House) -> None:
    tokens = house.fleet.tokens
    with pytest.raises(NeedsToken, match="not known"):
        await join(house, "wrk_a", "nonsense")
    with pytest.raises(NeedsToken, match="its socket only"):
        await join(house, "wrk_a", WORKER_TOKEN)
    made = await tokens.create(SYSTEM, "brief", expires_in=60.0)
    with pytest.raises(NotAllowed, match="for a worker, not for a manager"):
        await join(house, "man_a", made.token, "manager")
    house.clock.time += 61.0
    with pytest.raises(NeedsToken, match="has expired"):
        await join(house, "wrk_a", made.token)
    await house.fleet.join("wrk_here", WORKER_TOKEN, 1, "worker", local=True)
    with pytest.raises(Conflict, match="a member already"):
        await join(house, "wrk_here", (await tokens.create(SYSTEM)).token)
    assert [one.id for one in await house.fleet.members()] == ["wrk_here"]


async def test_a_shared_token_is_for_many_but_each_keeps_to_it(house: House) -> None:
    tokens = house.fleet.tokens
    await tokens.know("from-a-file")
    await tokens.know("from-a-file")
    for n in range(3):
        await join(house, f"wrk_{n}", "from-a-file")
    own = await tokens.create(SYSTEM)
    with pytest.raises(Conflict, match="another token"):
        await join(house, "wrk_0", own.token)
    (file,) = (one for one in await tokens.list(SYSTEM) if one.shared)
    assert (file.shared, file.members) == (True, ["0", "1", "2"])
    await tokens.revoke(SYSTEM, file.id)
    await tokens.know("from-a-file")  # the next start of the coordinator does not bring it back
    with pytest.raises(NeedsToken, match="revoked"):
        await join(house, "wrk_9", "from-a-file")


async def test_who_watches_is_told_of_a_revocation(house: House) -> None:
    made = await house.fleet.tokens.create(SYSTEM, "cellar")
    watching = asyncio.create_task(house.fleet.tokens.watch(made.token))
    local = asyncio.create_task(house.fleet.tokens.watch(WORKER_TOKEN))
    await asyncio.sleep(0)
    await house.fleet.tokens.revoke(SYSTEM, made.info.id)
    async with asyncio.timeout(30):
        with pytest.raises(NeedsToken, match=r"\(cellar\) was revoked"):
            await watching
    assert not local.done()
    local.cancel()


async def test_only_admins_make_them_and_bad_input_is_told(house: House) -> None:
    tokens, nobody = house.fleet.tokens, Caller("somebody", frozenset({"read", "write"}))
    for call in (tokens.create(nobody), tokens.list(nobody), tokens.revoke(nobody, "0" * 16)):
        with pytest.raises(NotAllowed):
            await call
    for wrong in ({"name": "x" * 201}, {"roles": ("boss",)}, {"roles": ()}, {"expires_in": 0.0}):
        with pytest.raises(BadInput):
            await tokens.create(SYSTEM, **wrong)
    for id in ("", "%" * 16, "0" * 16, "0" * 8):
        with pytest.raises(NotFound):
            await tokens.revoke(SYSTEM, id)


@settings(max_examples=15)
@given(steps=st.lists(st.tuples(st.sampled_from("jjjr"), st.integers(0, 2), st.integers(0, 2)), max_size=25))
async def test_no_two_members_share_a_token_and_none_has_two(house: House, steps: list[tuple[str, int, int]]) -> None:
    """Against a model: who is bound to what, and what is revoked."""
    run = (await house.db.read("SELECT count(*) AS n FROM member_token"))[0]["n"]
    made = [await house.fleet.tokens.create(SYSTEM, str(n)) for n in range(3)]
    bound: dict[str, int] = {}
    revoked: set[int] = set()
    for step, token, n in steps:
        member = f"wrk_{run}x{n}"
        if step == "r":
            try:
                await house.fleet.tokens.revoke(SYSTEM, made[token].info.id)
            except NotFound:
                assert token in revoked
            revoked.add(token)
            continue
        free = token not in bound.values() and bound.get(member, token) in {token, *revoked}
        allowed = token not in revoked and (bound.get(member) == token or free)
        try:
            await join(house, member, made[token].token)
        except SkepError:
            assert not allowed
        else:
            assert allowed
            bound[member] = token
