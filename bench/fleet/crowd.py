"""Simulated workers that only beat, each with a stream of its own: `python -m bench.fleet.crowd TARGET COUNT`.

Says how long it took until all were attached, and goes on until its input ends.
"""

import asyncio
import sys
import time

from skep.clock import SystemClock
from skep.link.peer import Peer
from skep.model.member import Offer


def member(n: int) -> str:
    return f"wrk_{n:026d}"


async def main(target: str, count: int) -> None:
    clock, offer = SystemClock(), Offer(mirror=True)
    peers = [Peer(target, "t", ("worker",), clock, member=member(n), offer=offer) for n in range(count)]
    began = time.perf_counter()
    running = [asyncio.create_task(peer.run()) for peer in peers]
    while not all(peer.link.attached for peer in peers):
        await asyncio.sleep(0.01)
    print(f"{time.perf_counter() - began:.2f}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
