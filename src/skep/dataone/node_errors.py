"""What went wrong, as DataONE names it: typed XML, and for HEAD, whose answers have no body, headers."""

from collections.abc import Mapping
from urllib.parse import quote

from skep.base.answers import ErrorBody
from skep.base.errors import Conflict, SkepError
from skep.dataone.encoding import render
from skep.dataone.types import D1Error

#: of a Coordinating Node, and of a Member Node
CN, MN = "/cn/", "/mn/"
PATHS = (CN, MN)
#: our codes -> name and status there. Where neither fits, the service failed
_NAMES = {
    "bad_input": ("InvalidRequest", 400),
    "bad_query": ("InvalidRequest", 400),
    "bad_url": ("InvalidRequest", 400),
    "needs_token": ("InvalidToken", 401),
    "not_allowed": ("NotAuthorized", 401),
    "not_found": ("NotFound", 404),
    "method_not_allowed": ("NotImplemented", 501),
    "not_implemented": ("NotImplemented", 501),
    "conflict": ("IdentifierNotUnique", 409),
    "version_mismatch": ("VersionMismatch", 409),
    "too_large": ("InsufficientResources", 413),
    "no_space": ("InsufficientResources", 413),
}


class NotOffered(SkepError):
    code = "not_implemented"
    status = 501


class VersionMismatch(Conflict):
    code = "version_mismatch"


def explain(body: ErrorBody, *, anonymous: bool) -> D1Error:
    """Who showed no token has no invalid one."""
    name, status = _NAMES.get(body.code, ("ServiceFailure", 500))
    if name == "InvalidToken" and anonymous:
        name = "NotAuthorized"
    return D1Error(name, status, "0", f"{body.message}. {body.hint}" if body.hint else body.message)


def document(error: D1Error) -> bytes:
    return render(error)


def headers(error: D1Error) -> Mapping[str, str]:
    return {
        "DataONE-Exception-Name": error.name,
        "DataONE-Exception-ErrorCode": str(error.error_code),
        "DataONE-Exception-DetailCode": error.detail_code,
        "DataONE-Exception-Description": quote(error.description[:1000], safe=" :/'\".,;()-_"),
    }
