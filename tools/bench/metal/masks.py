"""Takes what identifies a card or a machine out of texts and bytes before they are kept: UUIDs, serial numbers, names
of the host.
"""

from __future__ import annotations

import re
from typing import Any

MASKED = "masked"
# shorter words would be found in other words
MIN_SECRET = 4
UUID = re.compile(
    r"\b((?:GPU|MIG|GI)-)?([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})\b"
)
# elements of `nvidia-smi -q -x` that name one board or one machine
ELEMENTS = (
    "uuid", "serial", "pdi", "board_serial", "chassis_serial_number", "serial_number", "slot_number", "tray_index",
    "host_id", "peer_type", "module_id", "gpu_fabric_guid", "clusterUuid", "cluster_uuid", "hostname", "process_name",
)  # fmt: skip
ELEMENT = re.compile(rf"<({'|'.join(ELEMENTS)})>([^<]*)</\1>")
NOTHING = frozenset(("", "N/A", "[N/A]", "None", "0", MASKED))


class Masks:
    """The secrets that are known so far. Texts lose them, and all that looks like a UUID; bytes keep their length."""

    def __init__(self, *secrets: str) -> None:
        self._texts: set[str] = set()
        self._bytes: set[bytes] = set()
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Take a word out from now on, as text and as bytes; of a UUID, or 32 digits of one, the 16 bytes too."""
        secret = secret.strip()
        if secret in NOTHING or len(secret) < MIN_SECRET:
            return
        self._texts.add(secret)
        self._bytes.add(secret.encode())
        digits = secret.removeprefix("GPU-").replace("-", "")
        if re.fullmatch(r"[0-9a-fA-F]{32}", digits):
            self._bytes.add(bytes.fromhex(digits))
            dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
            self._texts.update((digits, dashed))
            self._bytes.update((digits.encode(), dashed.encode()))

    def learn_from(self, text: str) -> None:
        """Learn the secrets that a text of `nvidia-smi` or of the driver's files shows."""
        for found in UUID.finditer(text):
            self.learn(found[2])
        for _, value in ELEMENT.findall(text):
            self.learn(value)
        for value in re.findall(r"^(?:Serial(?: Number)?|GPU UUID)\s*:\s*(\S+)", text, re.MULTILINE):
            self.learn(value)

    def text(self, text: str) -> str:
        """Return a text without them."""
        text = ELEMENT.sub(lambda found: f"<{found[1]}>{MASKED}</{found[1]}>", text)
        text = UUID.sub(lambda found: f"{found[1] or ''}{MASKED}", text)
        # longest first: one secret may be part of another
        for secret in sorted(self._texts, key=len, reverse=True):
            text = re.sub(re.escape(secret), MASKED, text, flags=re.IGNORECASE)
        return text

    def data(self, data: bytes) -> bytes:
        """Return bytes with `x` in their place."""
        for secret in sorted(self._bytes, key=len, reverse=True):
            data = re.sub(re.escape(secret), b"x" * len(secret), data)
        return re.sub(UUID.pattern.encode(), lambda found: b"x" * len(found[0]), data)

    def plain(self, value: Any) -> Any:
        """Return nested plain values without them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.plain(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(inner) for inner in value]
        return value
