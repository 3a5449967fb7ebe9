"""Tokens and login tickets."""

import stat
from pathlib import Path

import pytest

from skep.access.tokens import TICKET_SECONDS
from skep.base.caller import SYSTEM
from skep.base.errors import BadInput, NeedsToken, NotAllowed, NotFound
from tests.rooms.house import House


async def test_the_admin_token_lies_in_a_file_only_its_owner_can_read(house: House, tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (await house.access.caller(file.read_text().strip())).may("admin")


async def test_the_admin_token_outlives_a_restart(house: House, tmp_path: Path) -> None:
    before = (tmp_path / "admin.token").read_text()
    await house.access.start()
    assert (tmp_path / "admin.token").read_text() == before


async def test_a_token_does_what_its_scopes_say_until_revoked(house: House) -> None:
    made = await house.access.create(SYSTEM, "ci", ["read", "write"])
    caller = await house.access.caller(made.token)
    assert caller.may("write") and not caller.may("admin")
    with pytest.raises(NotAllowed):
        await house.access.create(caller, "more", ["admin"])
    assert made.info in (await house.access.list(SYSTEM)).items
    await house.access.revoke(SYSTEM, made.info.id)
    with pytest.raises(NeedsToken):
        await house.access.caller(made.token)
    with pytest.raises(NotFound):
        await house.access.revoke(SYSTEM, made.info.id)


async def test_a_token_expires(house: House) -> None:
    made = await house.access.create(SYSTEM, "ci", ["read"], expires_in=60)
    house.clock.time += 61
    with pytest.raises(NeedsToken):
        await house.access.caller(made.token)


async def test_a_ticket_is_good_once_and_not_for_ever(house: House) -> None:
    ticket = await house.access.login_ticket(SYSTEM)
    assert (await house.access.caller(await house.access.redeem(ticket))).may("admin")
    with pytest.raises(NeedsToken):
        await house.access.redeem(ticket)
    late = await house.access.login_ticket(SYSTEM)
    house.clock.time += TICKET_SECONDS + 1
    with pytest.raises(NeedsToken):
        await house.access.redeem(late)


@pytest.mark.parametrize(("subject", "scopes"), [("", ["read"]), ("x", []), ("x", ["root"]), ("a\nb", ["read"])])
async def test_senseless_tokens_are_refused(house: House, subject: str, scopes: list[str]) -> None:
    with pytest.raises(BadInput):
        await house.access.create(SYSTEM, subject, scopes)  # type: ignore[arg-type]  # as a request may send it


NO_IDS: list[str] = ["", "%", "a" * 7, "_______________", "%%%%%%%%%%"]


async def test_revoking_takes_an_id_and_no_pattern(house: House, subtests: pytest.Subtests) -> None:
    for id in NO_IDS:
        with subtests.test(ascii(id)[:200]), pytest.raises((BadInput, NotFound)):
            await house.access.revoke(SYSTEM, id)


async def test_logging_out_ends_the_session_and_no_other_token(house: House) -> None:
    session = await house.access.redeem(await house.access.login_ticket(SYSTEM))
    token = (await house.access.create(SYSTEM, "ci", ["read"])).token
    for one in (session, token):
        await house.access.end_session(one)
    with pytest.raises(NeedsToken):
        await house.access.caller(session)
    assert (await house.access.caller(token)).subject == "ci"
