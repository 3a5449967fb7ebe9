"""Exit codes: what a script may rely on. docs/cli.md is made from this table."""

from skep.errors import BadInput, NeedsToken, NotAllowed, NotFound, SkepError, Unavailable

OK = 0
NOTHING_FOUND = 1
TASK_FAILED = 1
BAD_INPUT = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
UNAVAILABLE = 5
FAILED_SOURCE = 6
REFUSED = 7
INTERRUPTED = 130

MEANING = {
    OK: "done; a search found something",
    NOTHING_FOUND: "a search, or a template in a space, found nothing; what was waited for has failed",
    BAD_INPUT: "the command line, a setting, a URL, a query or a file of tasks is wrong",
    NOT_FOUND: "no such source, token, topic, space, context or task",
    NOT_ALLOWED: "a token is needed, or the one given may not do this",
    UNAVAILABLE: "the server cannot be reached, or is too busy",
    FAILED_SOURCE: "`--wait`: the source cannot be fetched at the moment",
    REFUSED: "the server could not do it: a conflict, a full disk, damaged data",
    INTERRUPTED: "stopped by Ctrl-C",
}

_BY_ERROR: tuple[tuple[type[SkepError], int], ...] = (
    (BadInput, BAD_INPUT),
    (NotFound, NOT_FOUND),
    (NeedsToken, NOT_ALLOWED),
    (NotAllowed, NOT_ALLOWED),
    (Unavailable, UNAVAILABLE),
)


def code_of(error: SkepError) -> int:
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), REFUSED)
