"""What every handler is given: the core, the settings, and the caller whom the guard made out."""

from types import ModuleType
from typing import Annotated, Any

from litestar import Request
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter, SkipValidation

from skep.base.caller import Caller
from skep.base.errors import BadInput
from skep.config.settings import Settings
from skep.interfaces.core import Core
from skep.interfaces.http.decoding import SMALL, aside, decoded
from skep.sources.model import SourceState

TheCore = NamedDependency[SkipValidation[Core]]
TheSettings = NamedDependency[SkipValidation[Settings]]
Asker = NamedDependency[SkipValidation[Caller]]


class Asked(Request[Caller, Any, State]):
    async def json(self) -> Any:
        """A large body is decoded at once to what the handler wants, which Litestar then takes as it is."""
        body, handler = await self.body(), self.route_handler
        if len(body) > SMALL:
            field = getattr(handler, "parsed_data_field", None)
            wanted = field.annotation if field else Any
            return await aside(len(body), decoded, body, wanted, handler.opt.get("pieces"))
        # Litestar lets these two through as if they were faults of ours
        try:
            return await super().json()
        except (UnicodeDecodeError, RecursionError) as error:
            raise BadInput(f"the body cannot be read as JSON: {error}") from error


PageToken = Annotated[str, QueryParameter(description="`next_page` of the answer before", max_length=2000)]
#: `state` itself is a reserved name of Litestar's
InState = Annotated[SourceState | None, QueryParameter(name="state", description="only sources in this state")]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="how many at most")]


def routes(*rooms: ModuleType) -> list[HTTPRouteHandler]:
    """Every handler that these modules declare."""
    return [one for room in rooms for one in vars(room).values() if isinstance(one, HTTPRouteHandler)]


def provide(core: Core, settings: Settings) -> dict[str, Provide]:
    def the_core() -> Core:
        return core

    def the_settings() -> Settings:
        return settings

    def the_caller(request: Asked) -> Caller:
        return request.user

    return {
        "core": Provide(the_core, sync_to_thread=False),
        "settings": Provide(the_settings, sync_to_thread=False),
        "caller": Provide(the_caller, sync_to_thread=False),
    }
