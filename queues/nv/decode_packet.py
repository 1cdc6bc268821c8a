"""What NVIDIA's decoders return: packets of a pushbuffer with their methods, entries of a GPFIFO, descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringup.queues.decode import Packet


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a run, or several of the same name that carry data.

    `address_bytes` is the byte offset of the first one in its class. `values`: the words written. `fields`: those of
    the word, none for data. `names`: the enumerated values among them. `note`: what is wrong or special.
    """

    address_bytes: int
    name: str
    values: tuple[int, ...]
    fields: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class NvPacket(Packet):
    """One packet: a method header with its data, an entry of a GPFIFO, or a launch descriptor.

    `target`: the subchannel of the header and the name of the class there. `methods`: what the run does. `names`: the
    enumerated values among `fields`.
    """

    target: str = ""
    methods: tuple[Method, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
