"""Trusted applications that the model has: XGMI, which tells a card's place among those linked with it.

Source: ta_xgmi_if.h, amdgpu_psp.c (psp_xgmi_*). UNKNOWN: how metal tells applications apart. Here by the first byte of
an image's version, which Debian's psp_13_0_6_ta.bin and psp_13_0_0_ta.bin agree on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringup.autogen.amd import ta_xgmi as xgmi
from ringup.autogen.structs import memory
from ringup.silicon.amd.psp.images import Image

XGMI = 0x20
HOPS_TO_ITSELF, HOPS = 0, 1


@dataclass(frozen=True, slots=True)
class Hive:
    """A card's place: the number of the cards that are linked, its own, and of which it is one. Drivers compare the
    numbers and learn nothing else from them.
    """

    hive_id: int
    node_id: int
    cards: int


def application_of(image: Image) -> int:
    """Return the number of an application."""
    return image.version >> 24


def call_xgmi(hive: Hive, buffer: bytes) -> bytes:
    """Execute the command in the memory shared with a driver and return the memory's new content."""
    shared = xgmi.ta_xgmi_shared_memory.view(bytearray(buffer[: xgmi.ta_xgmi_shared_memory.SIZE]))
    command = shared.cmd_id
    handler = _HANDLERS.get(command)
    shared.resp_id = command | xgmi.RSP_ID_MASK
    if handler is None:
        shared.xgmi_status = xgmi.TA_XGMI_STATUS__INVALID_PARAMETER
    else:
        shared.xgmi_status = xgmi.TA_XGMI_STATUS__SUCCESS
        handler(hive, shared)
    return bytes(memory(shared))


def _topology(hive: Hive, shared: Any) -> None:
    """Return the cards that the driver has asked about; all are linked to each other."""
    asked, found = shared.xgmi_in_message.get_topology_info, shared.xgmi_out_message.get_topology_info
    found.num_nodes = asked.num_nodes
    for number in range(min(asked.num_nodes, xgmi.TA_XGMI__MAX_CONNECTED_NODES)):
        node = asked.nodes[number].node_id
        found.nodes[number].node_id = node
        found.nodes[number].num_hops = HOPS_TO_ITSELF if node == hive.node_id else HOPS
        found.nodes[number].is_sharing_enabled = 1
        found.nodes[number].sdma_engine = xgmi.TA_XGMI_ASSIGNED_SDMA_ENGINE__NOT_ASSIGNED


def _links(name: str) -> Callable[[Hive, Any], None]:
    def execute(hive: Hive, shared: Any) -> None:
        """Return how many links lead to each card that the driver has asked about: one to every other."""
        asked, found = shared.xgmi_in_message.get_topology_info, getattr(shared.xgmi_out_message, name)
        found.num_nodes = asked.num_nodes
        for number in range(min(asked.num_nodes, xgmi.TA_XGMI__MAX_CONNECTED_NODES)):
            node = asked.nodes[number].node_id
            found.nodes[number].node_id = node
            found.nodes[number].num_links = int(node != hive.node_id)

    return execute


def _node_id(hive: Hive, shared: Any) -> None:
    shared.xgmi_out_message.get_node_id.node_id = hive.node_id


def _hive_id(hive: Hive, shared: Any) -> None:
    shared.xgmi_out_message.get_hive_id.hive_id = hive.hive_id


_HANDLERS: dict[int, Callable[[Hive, Any], None]] = {
    xgmi.TA_COMMAND_XGMI__INITIALIZE: lambda hive, shared: None,
    xgmi.TA_COMMAND_XGMI__GET_NODE_ID: _node_id,
    xgmi.TA_COMMAND_XGMI__GET_HIVE_ID: _hive_id,
    xgmi.TA_COMMAND_XGMI__GET_TOPOLOGY_INFO: _topology,
    xgmi.TA_COMMAND_XGMI__SET_TOPOLOGY_INFO: lambda hive, shared: None,
    xgmi.TA_COMMAND_XGMI__GET_PEER_LINKS: _links("get_link_info"),
    xgmi.TA_COMMAND_XGMI__GET_EXTEND_PEER_LINKS: _links("get_extend_link_info"),
}
