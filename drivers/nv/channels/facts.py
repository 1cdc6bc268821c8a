"""What GSP-RM tells of a card, as the facts that every path has.

Source: OGKM gsp_static_config.h; ctrl2080internal.h, NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_INFO; ctrl2080gr.h.
"""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.drivers.nv.bus.chips import Chip
from ringup.drivers.nv.channels.engines import Engines
from ringup.drivers.nv.gsp.system import StaticInfo
from ringup.drivers.nv.rm.client import RmClient
from ringup.drivers.nv.rm.facts import CardFacts
from ringup.errors import DeviceHung, NotSupported
from ringup.queues.nv.rows import ROWS, GenerationRow

# by the chip that has a family's facts: the name of its row in queues/nv/rows.py
FAMILY_ROWS = {
    "tu102": "turing",
    "ga100": "ga100",
    "ga102": "ampere",
    "ad102": "ada",
    "gh100": "hopper",
    "gb100": "blackwell gb100",
    "gb202": "blackwell gb202",
}
# limits of ours: more than any chip has
MAX_TPCS, MAX_SMS_PER_TPC = 512, 8


def row_of_chip(chip: Chip) -> GenerationRow:
    """Return the row of a chip's generation. Raises `NotSupported`."""
    wanted = FAMILY_ROWS.get(chip.facts)
    for row in ROWS:
        if row.name == wanted:
            return row
    raise NotSupported(f"no queues are known for {chip.name}")


def read(client: RmClient, static: StaticInfo, chip: Chip, engines: Engines, bar1_bytes: int) -> CardFacts:
    """Ask GSP-RM. `client`: its own, which internal controls need. Raises `DeviceHung` for facts that cannot be."""
    row = row_of_chip(chip)
    told = client.ask(
        static.subdevice,
        internal.NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_INFO,
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_INFO_PARAMS,
        "asking for the graphics engine's units",
    )
    units = told.engineInfo[0].infoList
    gpcs = units[gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_COUNT].data
    tpcs = units[gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT].data
    sms_per_tpc = units[gr.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC].data
    if not 0 < tpcs <= MAX_TPCS or not 0 < sms_per_tpc <= MAX_SMS_PER_TPC:
        raise DeviceHung(f"GSP-RM tells of {tpcs} TPCs with {sms_per_tpc} SMs each; reset the card")
    return CardFacts(
        product=static.name,
        chip=chip.name,
        row=row,
        classes=frozenset((row.channel_class, row.compute_class, row.copy_class)),
        copy_engines=tuple(one.type for one in engines.copies),
        sms=tpcs * sms_per_tpc,
        tpcs=tpcs,
        gpcs=gpcs,
        warps_per_sm=units[gr.NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM].data,
        vram_bytes=static.fb_bytes,
        bar1_bytes=bar1_bytes,
        l2_bytes=static.l2_bytes,
        gid=static.gid,
    )
