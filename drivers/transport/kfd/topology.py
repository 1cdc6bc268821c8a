"""The compute nodes that amdkfd lists in sysfs: processors and GPUs, their memory, caches and links.

Reading opens no device. Files may be absent, refused or odd: their values are then absent. Source: Linux amdkfd
kfd_topology.c, node_show, mem_show, kfd_cache_show, iolink_show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ringup.drivers.transport.linux.function import Function
from ringup.drivers.transport.linux.kernel import Kernel

NODES = "sys/class/kfd/kfd/topology/nodes"
RENDER = "dev/dri/renderD"
# Bounds for odd files. A node's largest file has some 2 KiB, a machine has some ten nodes
MAX_FILE_BYTES, MAX_NODES, MAX_PARTS = 1 << 16, 256, 4096
NUMBER = re.compile(r"[0-9]{1,6}")
PROPERTY = re.compile(r"(\w{1,64})\s+(\d{1,20})")
# Kinds of memory banks. Source: kfd_crat.h, HSA_MEM_HEAP_TYPE_*
HEAP_FB_PUBLIC, HEAP_FB_PRIVATE = 1, 2
L2 = 2
KIB = 1024

Properties = Mapping[str, int]


@dataclass(frozen=True)
class Node:
    """One compute node. `gpu_id` is 0 for a processor, and where the file is refused (by a device cgroup).

    `number`: the node's place in the topology. `properties` and the other mappings have the kernel's names.
    """

    number: int
    gpu_id: int
    properties: Properties
    kernel: Kernel = field(repr=False)
    path: Path = field(repr=False)

    @property
    def is_gpu(self) -> bool:
        """Whether it has compute units."""
        return self.properties.get("simd_count", 0) > 0

    @property
    def render_minor(self) -> int:
        """The minor number of its render node; 0 if it has none."""
        return self.properties.get("drm_render_minor", 0)

    @property
    def render_path(self) -> Path:
        """Its render node."""
        return self.kernel.path(f"{RENDER}{self.render_minor}")

    @property
    def address(self) -> str:
        """Its address on the PCI bus, such as 0000:03:00.0."""
        domain, place = self.properties.get("domain", 0), self.properties.get("location_id", 0)
        return f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"

    @property
    def function(self) -> Function:
        """Its function on the PCI bus."""
        return Function(self.kernel, self.address)

    @property
    def target(self) -> str:
        """What compilers call its instruction set, such as gfx1100.

        Source: kfd_device.c: the version is 10000 * major + 100 * minor + stepping.
        """
        version = self.properties.get("gfx_target_version", 0)
        return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"

    @cached_property
    def memory_banks(self) -> tuple[Properties, ...]:
        """Its memory banks."""
        return self._parts("mem_banks")

    @cached_property
    def caches(self) -> tuple[Properties, ...]:
        """Its caches; those of one kind repeat."""
        return self._parts("caches")

    @cached_property
    def links(self) -> tuple[Properties, ...]:
        """Its links to other nodes."""
        return self._parts("io_links")

    @property
    def vram_bytes(self) -> int:
        """Its own memory."""
        heaps = (HEAP_FB_PUBLIC, HEAP_FB_PRIVATE)
        return sum(bank.get("size_in_bytes", 0) for bank in self.memory_banks if bank.get("heap_type") in heaps)

    @property
    def l2_bytes(self) -> int:
        """Its L2 cache; 0 where the kernel lists none."""
        return max((cache.get("size", 0) for cache in self.caches if cache.get("level") == L2), default=0) * KIB

    def block_version(self, name: str) -> tuple[int, int, int] | None:
        """Return the version of a block of the chip, such as GC or SDMA0, from the card's discovery table.

        Source: amdgpu_discovery.c, ip_discovery/die/0/NAME/0 (Linux 5.18).
        """
        folder = self.function.path / "ip_discovery/die/0" / name / "0"
        parts = [self.kernel.number(folder / part, -1) for part in ("major", "minor", "revision")]
        major, minor, revision = parts
        return (major, minor, revision) if min(parts) >= 0 else None

    @property
    def there(self) -> bool:
        """Whether the kernel still lists this node with this GPU."""
        return _number(self.path / "gpu_id") == self.gpu_id

    def _parts(self, name: str) -> tuple[Properties, ...]:
        folder = self.path / name
        found = sorted(filter(NUMBER.fullmatch, self.kernel.names(folder)), key=int)[:MAX_PARTS]
        return tuple(properties(folder / part / "properties") for part in found)


def gpus(kernel: Kernel) -> list[Node]:
    """Return the GPU nodes in the kernel's order: `kfd:0` is the first."""
    return [node for node in nodes(kernel) if node.is_gpu]


def nodes(kernel: Kernel) -> list[Node]:
    """Return all nodes that the kernel lists, in its order."""
    root = kernel.path(NODES)
    found = sorted(filter(NUMBER.fullmatch, kernel.names(root)), key=int)[:MAX_NODES]
    return [_node(kernel, root / name) for name in found]


def _node(kernel: Kernel, path: Path) -> Node:
    gpu_id = _number(path / "gpu_id")
    return Node(int(path.name), gpu_id, properties(path / "properties"), kernel, path)


def _number(path: Path) -> int:
    text = bounded_text(path)
    return int(text) if text.isdecimal() and len(text) < 20 else 0


def properties(path: Path) -> Properties:
    """Return the lines `name number` of a file; others are left out."""
    found = (PROPERTY.fullmatch(line.strip()) for line in bounded_text(path).splitlines())
    return {line[1]: int(line[2]) for line in found if line}


def bounded_text(path: Path) -> str:
    """Return the beginning of a file's text without blanks around it; empty when it cannot be read."""
    try:
        node = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(node, MAX_FILE_BYTES).decode("ascii", errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(node)
