import msgspec


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    #: seconds of wall time
    seconds: float | None = None
    #: seconds of processor time
    cpu: float | None = None
    #: bytes
    memory: int | None = None
    #: bytes kept of each stream
    output: int = 10_000_000
    #: bytes in its folder
    disk: int | None = None
    #: processes at the same time
    processes: int = 512
