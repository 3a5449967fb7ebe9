"""What git's complaints mean (pure). Every failure exits with 128, so its words must tell."""

import re

from skep.model.source import Failure, FailureClass
from skep.sources.git.process import Result

#: in this order: a full disk also looks like a broken pack
_MEANINGS: tuple[tuple[str, FailureClass, str], ...] = (
    (r"No space left on device|Disk quota exceeded", "disk", "the disk is full"),
    (r"File too large", "too_big", "the repository is larger than `max_repository`"),
    (r"fsck error|corruption on the remote side", "corrupt", "the upstream sends objects that are not sound"),
    (r"Authentication failed|could not read (?:Username|Password)|Permission denied|terminal prompts disabled"
     r"|requested URL returned error: 40[13]", "auth", "the upstream asks for a password or key"),
    (r"Host key verification failed|REMOTE HOST IDENTIFICATION", "blocked",
     "the host's ssh key is not the one known from before"),
    (r"transport '.*' not allowed|unable to update url base from redirection", "blocked",
     "the upstream sends us elsewhere"),
    (r"not appear to be a git repository|not a git repository|Could not read from remote repository.*not found"
     r"|invalid gitfile"
     r"|Too many levels of symbolic links|Not a directory|access denied or repository not exported", "not_git",
     "it is not a git repository"),
    (r"[Rr]epository .*not found|requested URL returned error: 4(?:04|10)|No such file or directory", "gone",
     "there is no such repository"),
    (r"requested URL returned error: 429", "rate_limited", "the server says we ask too often"),
    (r"[Tt]imed out|Operation too slow|Could(?: not|n't) (?:resolve|connect)|Connection (?:refused|reset)|early EOF"
     r"|hung up unexpectedly|unexpected disconnect|transfer closed|returned error: 5|SSL|TLS|unable to access",
     "network", "the connection failed"),
    (r"bad object|missing (?:blob|tree|commit)|invalid index-pack output|loose object .* corrupt|inflate: "
     r"|pack has bad", "corrupt", "the data is damaged"),
)  # fmt: skip
#: upstream's own words may not carry control characters or secrets into our pages and logs
_NOISE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_USERINFO = re.compile(r"//[^/@\s]*@")
_CONFLICT = re.compile(r"'refs/.+' exists; cannot create|there are still refs under")


def is_ref_conflict(result: Result) -> bool:
    """A branch `a` stands where upstream now has `a/b`, or the other way round."""
    return result.code != 0 and bool(_CONFLICT.search(result.err))


def failure_of(result: Result, url: str) -> Failure:
    said = _words(result.err)
    for pattern, kind, meaning in _MEANINGS:
        if re.search(pattern, result.err, re.DOTALL):
            return Failure(kind, f"{url}: {meaning} ({said})" if said else f"{url}: {meaning}")
    return Failure("network", f"{url}: {said or f'git ended with {result.code}'}")


def _words(err: str) -> str:
    lines = [line.strip() for line in err.splitlines()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))] or lines
    return _USERINFO.sub("//", _NOISE.sub("", "; ".join(line for line in telling[:3] if line)))[:400]
