"""The bytes of an object on their way in: nothing is believed of them that was not counted and hashed here."""

from pathlib import Path

from skep.dataone.types import Checksum, SystemMetadata


class Catch:
    """The bytes of one object as they come: counted, hashed, and kept in memory or in a file."""

    def __init__(self, expected: SystemMetadata, file: Path | None) -> None:
        self._expected = expected
        self.file = file
        self.reset()

    def reset(self) -> None:
        self.size = 0
        self.hash = self._expected.checksum.hash()
        self.kept = bytearray()
        if self.file:
            self.file.write_bytes(b"")

    def write(self, chunk: bytes) -> int | None:
        """A node that gives more than it promised is not listened to any longer."""
        self.size += len(chunk)
        self.hash.update(chunk)
        if self.file:
            with self.file.open("ab") as file:
                file.write(chunk)
        else:
            self.kept += chunk
        return 0 if self.full else None

    @property
    def full(self) -> bool:
        return self.size > self._expected.size

    def beginning(self, most: int) -> bytes:
        if self.file is None:
            return bytes(self.kept[:most])
        with self.file.open("rb") as file:
            return file.read(most)

    def wrong(self) -> str:
        """What is not as promised, with both values."""
        if self.size != self._expected.size:
            return f"it has {self.size} bytes or more, not {self._expected.size} as promised"
        found = Checksum(self.hash.hexdigest(), self._expected.checksum.algorithm)
        if not self._expected.checksum.agrees(found):
            return f"its {found.name} is {found.value}, not {self._expected.checksum.value} as promised"
        return ""
