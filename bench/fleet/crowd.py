"""Simulated workers that only beat, each with a stream of its own: `python -m bench.fleet.crowd COUNT TOKEN TARGET…`.

Each time that all have become attached it says how long that took; it goes on until its input ends.
"""

import asyncio
import sys
import time

from skep.base.clock import SystemClock
from skep.fleet.api import Offer
from skep.rpc.client import Peer
from skep.rpc.connect import Dial


def member(n: int) -> str:
    return f"wrk_{n:026d}"


async def main(count: int, token: str, targets: tuple[str, ...]) -> None:
    clock, offer = SystemClock(), Offer(mirror=True)
    # half of them prefer the last to the first
    ways = [Dial(targets), Dial(targets[::-1])]
    peers = [Peer(ways[n % 2], token, ("worker",), clock, member=member(n), offer=offer) for n in range(count)]
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    running = [asyncio.create_task(peer.run()) for peer in peers]
    since: float | None = time.perf_counter()
    while not ended.done():
        whole, now = all(peer.link.attached for peer in peers), time.perf_counter()
        if whole and since is not None:
            print(f"{now - since:.2f}", flush=True)
        since = None if whole else since or now
        await asyncio.sleep(0.01)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])))
