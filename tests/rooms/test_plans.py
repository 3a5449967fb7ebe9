"""How often it is planned who should hold what."""

from skep.fleet.ring import Member, Plan
from skep.mirrors.replication import Moves, Moving
from skep.tasks.contexts import Contexts
from skep.tasks.placer import Owners, Placer
from tests.rooms.house import WORKER_TOKEN, House

SECONDS = 4.0


class SlowMoves(Moves):
    """As if there were a million sources."""

    plans = 0

    def __init__(self, house: House) -> None:
        super().__init__(house.db, house.clock, house.fleet, house.sources.raise_epoch)
        self._time = house.clock

    async def plan(self) -> tuple[list[Member], Plan]:
        self.plans += 1
        self._time.time += SECONDS
        return await super().plan()


async def test_a_long_plan_is_followed_by_a_rest_and_nothing_is_forgotten(house: House) -> None:
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    moves, owners = SlowMoves(house), Owners(house.db, "crd_1", 1.0)
    contexts = Contexts(house.db, house.clock, Placer(house.clock, owners, 60.0))
    moving = Moving(house.db, house.clock, house.fleet, moves, contexts, owners, 5.0)
    for _ in range(3):  # somebody comes and goes all the time
        await moving.step(changed=True)
    assert moves.plans == 1
    house.clock.time += 3 * SECONDS
    await moving.step(changed=False)
    assert moves.plans == 2, "of those who came meanwhile"
    house.clock.time += 3 * SECONDS
    await moving.step(changed=False)
    assert moves.plans == 2, "nothing has happened since"
    house.clock.time += 60.0
    await moving.step(changed=False)
    assert moves.plans == 3, "but it is looked at"
