"""A stream that ends under whoever uses it."""

import asyncio
from typing import Any

import pytest

from skep.rpc.connect import Dial
from skep.rpc.messages import PROTOCOL, Broken, DownFrame, Joiner, UpFrame, Welcome, Wire
from skep.rpc.server import listen

METHOD = "/skep.Test/Attach"


async def test_writing_to_a_member_that_has_just_left_is_an_error_for_people(target: str) -> None:
    """gRPC's own errors would pass everything that expects ours, and end the process."""
    attached: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()

    async def serve(_: object, context: Any) -> None:
        attached.set_result(Wire(context, Joiner(UpFrame)))
        await asyncio.Event().wait()

    server, dialled = await listen({METHOD: serve}, target)
    try:
        async with Dial((dialled,)).channel(dialled) as channel:
            call = channel.stream_stream(METHOD)()
            wire = await attached
            await wire.write([Welcome(PROTOCOL, 1.0)])
            await Wire(call, Joiner(DownFrame)).read()
            call.cancel()
            with pytest.raises(Broken, match="the link broke off"):
                async with asyncio.timeout(60):
                    while True:
                        await wire.write([Welcome(PROTOCOL, 1.0)])
    finally:
        await server.stop(None)
