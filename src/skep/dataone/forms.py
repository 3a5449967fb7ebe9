"""multipart/form-data, as DataONE's calls carry it: short values and whole documents as parts."""

import secrets
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP

from skep.errors import BadInput


def read_form(media: str, body: bytes) -> dict[str, bytes]:
    """Parts by name; of several with one name the first. BadInput when it is no form."""
    if not media.lower().startswith("multipart/form-data"):
        raise BadInput(f"the body is {media[:100]!r}", hint="send multipart/form-data")
    try:
        parts = _parts(b"content-type: " + media.encode("latin-1", "replace") + b"\r\n\r\n" + body)
    except (LookupError, ValueError, AttributeError, TypeError):
        # so the parser stumbles over some headers, instead of saying that they are bad
        raise BadInput("the form cannot be read", hint="is each part's content-disposition a proper one?") from None
    if not parts:
        raise BadInput("the form has no parts", hint="is its boundary the one that its content-type names?")
    return parts


def _parts(message: bytes) -> dict[str, bytes]:
    whole = BytesParser(policy=HTTP).parsebytes(message)
    parts: dict[str, bytes] = {}
    for part in whole.iter_parts() if whole.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(payload, bytes):
            parts.setdefault(name, payload)
    return parts


def write_form(parts: Mapping[str, str | bytes]) -> tuple[str, bytes]:
    """Its media type and body; bytes travel as files, text as values."""
    boundary = secrets.token_hex(16)
    lines: list[bytes] = []
    for name, value in parts.items():
        file = f'; filename="{name}.xml"\r\nContent-Type: text/xml' if isinstance(value, bytes) else ""
        data = value if isinstance(value, bytes) else value.encode()
        lines += [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n'.encode(), data]
    return f"multipart/form-data; boundary={boundary}", b"\r\n".join([*lines, f"--{boundary}--\r\n".encode()])
