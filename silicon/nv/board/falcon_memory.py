"""A falcon's two memories. Code memory has blocks of 256 bytes, each with a tag, its virtual block number."""

from __future__ import annotations

BLOCK_BYTES = 256


class DataMemory:
    """DMEM."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._bytes = bytearray(size_bytes)

    def clear(self) -> None:
        """Scrub it."""
        self._bytes = bytearray(self.size_bytes)

    def read(self, at: int, size_bytes: int) -> bytes:
        """Return bytes; fewer at the end of the memory."""
        return bytes(self._bytes[at : at + size_bytes])

    def write(self, at: int, data: bytes) -> bool:
        """Store bytes; return whether they fit."""
        if at + len(data) > self.size_bytes:
            return False
        self._bytes[at : at + len(data)] = data
        return True


class CodeMemory(DataMemory):
    """IMEM. Signed code lies in blocks that are marked secure as they are loaded; the CPU cannot read those back."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        # by physical block: its tag, and whether it is secure
        self._tags: dict[int, tuple[int, bool]] = {}

    def clear(self) -> None:
        """Scrub it; no block is valid then."""
        super().clear()
        self._tags.clear()

    def tag(self, block: int, tag: int, *, secure: bool) -> None:
        """Make a block valid."""
        self._tags[block] = tag, secure

    def find(self, tag: int) -> int | None:
        """Return the physical block with a tag; None if there is none."""
        return next((block for block, (found, _) in self._tags.items() if found == tag), None)

    def is_secure(self, at: int) -> bool:
        """Return whether a byte belongs to signed code."""
        return self._tags.get(at // BLOCK_BYTES, (0, False))[1]

    def secure_code(self) -> bytes:
        """Return all signed blocks in the order of their virtual addresses."""
        blocks = sorted((tag, block) for block, (tag, secure) in self._tags.items() if secure)
        return b"".join(self.read(block * BLOCK_BYTES, BLOCK_BYTES) for _, block in blocks)

    def plain_code(self, tag: int) -> bytes:
        """Return the unsigned blocks from a tag on, while tags follow each other."""
        found = []
        while (block := self.find(tag)) is not None and not self._tags[block][1]:
            found.append(self.read(block * BLOCK_BYTES, BLOCK_BYTES))
            tag += 1
        return b"".join(found)
