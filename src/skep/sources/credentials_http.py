"""Credentials: set, list, remove. No answer holds a secret."""

import msgspec
from litestar import delete, get, put
from litestar.params import FromPath, JSONBody

from skep.interfaces.http.dependencies import Asker, TheCore
from skep.sources.model import CredentialInfo, CredentialSpec, Use

TAG = "credentials"


class CredentialOrder(msgspec.Struct, forbid_unknown_fields=True):
    host: str
    token: str
    source: str = ""
    use: Use = "fetch"
    user: str = "x-access-token"
    public: bool = False


@put("/credentials/{name:str}", summary="Set a credential, or give it another secret")
async def put_credential(
    core: TheCore, caller: Asker, name: FromPath[str], data: JSONBody[CredentialOrder]
) -> CredentialInfo:
    spec = CredentialSpec(name, data.host, data.source, data.use, data.user, data.public)
    return await core.credentials.put(caller, spec, data.token)


@get("/credentials", summary="List credentials, without their secrets")
async def list_credentials(core: TheCore, caller: Asker) -> list[CredentialInfo]:
    return await core.credentials.list(caller)


@delete("/credentials/{name:str}", summary="Remove a credential")
async def remove_credential(core: TheCore, caller: Asker, name: FromPath[str]) -> None:
    await core.credentials.remove(caller, name)
