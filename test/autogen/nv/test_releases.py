"""The run-time interface of NVIDIA's facts: a driver gets the layout of its release, and a refusal where the layout is
unknown.
"""

import importlib

import pytest

from ringup.autogen.nv import (
    fsp,
    gsp_queue,
    gsp_rpc,
    nvdec,
    qmdv02_03,
    qmdv02_04,
    qmdv03_00,
    qmdv04_00,
    qmdv05_00,
    qmdv05_01,
    rm,
    rm_alloc,
    rm_ctrl_0000,
    rm_ctrl_0000_system,
    rm_ctrl_0080,
    rm_ctrl_2080_bus,
    rm_ctrl_2080_fb,
    rm_ctrl_2080_fifo,
    rm_ctrl_2080_gpu,
    rm_ctrl_2080_gr,
    rm_ctrl_2080_nvlink,
    rm_ctrl_channel,
    uvm,
)
from ringup.autogen.nv.by_release import constant
from ringup.errors import NotSupported

# The bytes of each struct from that release on. Another reader measured them over the repository's tags.
SIZES = [
    (rm.NVOS47_PARAMETERS, {"535.261.03": 40, "550.163.01": 48}),
    (rm.NVOS46_PARAMETERS, {"535.261.03": 56, "580.142": 64}),
    (rm.NVOS32_PARAMETERS, {"535.261.03": 184}),
    (rm.NVOS21_PARAMETERS, {"535.261.03": 32}),
    (rm.NVOS64_PARAMETERS, {"535.261.03": 48}),
    (rm_alloc.NV_MEMORY_ALLOCATION_PARAMS, {"535.261.03": 120, "550.163.01": 128}),
    (rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS, {"535.261.03": 48, "580.142": 56}),
    (rm_alloc.NV_CHANNEL_ALLOC_PARAMS, {"535.261.03": 360, "570.195.03": 368}),
    (rm_alloc.NV0000_ALLOC_PARAMETERS, {"535.261.03": 108, "570.195.03": 120}),
    (uvm.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, {"535.261.03": 1200, "550.163.01": 9264}),
    (uvm.UVM_ALLOC_SEMAPHORE_POOL_PARAMS, {"535.261.03": 1184, "550.163.01": 9248}),
    (uvm.UVM_FREE_PARAMS, {"535.261.03": 24, "590.48.01": 16}),
    (uvm.UVM_UNREGISTER_CHANNEL_PARAMS, {"535.261.03": 28, "590.48.01": 12}),
    (uvm.UVM_SET_PREFERRED_LOCATION_PARAMS, {"535.261.03": 40}),
    (
        rm_ctrl_0080.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS,
        {"535.261.03": 644, "550.163.01": 700, "555.58.02": 404, "580.142": 804},
    ),
    (
        rm_ctrl_2080_fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS,
        {"535.261.03": 436, "550.163.01": 444, "560.35.03": 460, "580.142": 1028},
    ),
    (
        rm_ctrl_2080_gpu.NV2080_CTRL_GPU_GET_INFO_V2_PARAMS,
        {"535.261.03": 516, "550.163.01": 524, "575.64.05": 532, "580.142": 564},
    ),
    (rm_ctrl_2080_gpu.NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS, {"535.261.03": 252, "550.163.01": 260, "560.35.03": 340}),
    (rm_ctrl_0000.NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS, {"535.261.03": 256, "580.142": 384}),
    (rm_ctrl_0000_system.NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS, {"535.261.03": 776, "560.35.03": 1032}),
    (rm_ctrl_2080_fifo.NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS, {"535.261.03": 68, "550.163.01": 136}),
    (
        rm_ctrl_2080_gr.NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS,
        {"535.261.03": 6168, "575.64.05": 7192, "580.142": 9240},
    ),
    (
        rm_ctrl_2080_nvlink.NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS_PARAMS,
        {"535.261.03": 5896, "555.58.02": 6152, "570.195.03": 13320, "580.142": 13344, "590.48.01": 13864},
    ),
    (
        rm_ctrl_2080_gpu.NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS,
        {
            "535.261.03": 984,
            "550.163.01": 1024,
            "555.58.02": 1224,
            "560.35.03": 1264,
            "565.77": 1464,
            "590.48.01": 1664,
        },
    ),
    (rm_ctrl_channel.NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, {"535.261.03": 2, "575.64.05": 3}),
    (rm_ctrl_channel.NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS, {"535.261.03": 12, "550.163.01": 16}),
    (rm_ctrl_0080.NV0080_CTRL_GPU_GET_VIRTUALIZATION_MODE_PARAMS, {"535.261.03": 4, "555.58.02": 8}),
    (rm_ctrl_2080_bus.NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS_PARAMS, {"535.261.03": 104, "560.35.03": 112}),
    (rm_ctrl_2080_bus.NV2080_CTRL_CMD_BUS_GET_C2C_INFO_PARAMS, {"535.261.03": 28}),
    (rm_ctrl_2080_gpu.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, {"535.261.03": 132, "595.45.04": 68}),
]
MEASURED = (
    "535.261.03", "550.163.01", "555.58.02", "560.35.03", "565.77", "570.195.03", "575.64.05", "580.142", "590.48.01", "595.45.04",
)  # fmt: skip


@pytest.mark.parametrize(("struct", "sizes"), SIZES, ids=[struct.__name__ for struct, _ in SIZES])
def test_a_struct_has_the_size_measured_for_every_release(struct, sizes):
    size = 0
    for release in MEASURED:
        size = sizes.get(release, size)
        assert size == struct.at(release).SIZE, release


def test_a_point_release_has_its_branchs_layout():
    assert rm.NVOS46_PARAMETERS.at("580.65.06") is rm.NVOS46_PARAMETERS.at("580.159")
    assert rm.NVOS46_PARAMETERS.at("580.159").offset_of("kindOverride") == 40


@pytest.mark.parametrize("release", ["525.147.05", "470.1"])
def test_a_release_before_the_first_row_is_refused(release):
    with pytest.raises(NotSupported, match=rf"driver release {release}: layouts are known for 535 to 595"):
        rm.NVOS46_PARAMETERS.at(release)


@pytest.mark.parametrize("release", ["600.10", "610.43.02"])
def test_a_release_after_the_last_row_is_refused_not_guessed(release):
    with pytest.raises(NotSupported, match="layouts are known for 535 to 595"):
        rm.NVOS46_PARAMETERS.at(release)
    with pytest.raises(NotSupported, match="layouts are known for 535 to 595"):
        constant(gsp_rpc, "NV_VGPU_MSG_FUNCTION_NUM_FUNCTIONS", release)


@pytest.mark.parametrize("release", ["", "five", "580.x"])
def test_what_is_no_release_is_a_value_error(release):
    with pytest.raises(ValueError, match=r"a driver release is a text like 580\.65\.06"):
        rm.NVOS46_PARAMETERS.at(release)


def test_a_struct_that_came_later_or_went_is_refused_where_it_is_not():
    assert rm.nv_ioctl_wait_open_complete_t.at("550.163.01").SIZE == 8
    with pytest.raises(NotSupported, match=r"535\.261\.03 has no nv_ioctl_wait_open_complete_t"):
        rm.nv_ioctl_wait_open_complete_t.at("535.261.03")
    gone = uvm.UVM_ENABLE_SYSTEM_WIDE_ATOMICS_PARAMS
    assert gone.at("590.48.01").SIZE == 20
    with pytest.raises(NotSupported, match=r"595\.45\.04 has no UVM_ENABLE_SYSTEM_WIDE_ATOMICS_PARAMS"):
        gone.at("595.45.04")


@pytest.mark.parametrize(
    ("module", "name", "release", "value"),
    [
        (gsp_rpc, "NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL", "535.261.03", 76),  # rpc_global_enums.h
        (gsp_rpc, "NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC", "595.45.04", 103),
        (gsp_rpc, "NV_VGPU_MSG_EVENT_GSP_INIT_DONE", "580.142", 0x1001),
        (gsp_rpc, "NV_VGPU_MSG_FUNCTION_NUM_FUNCTIONS", "535.261.03", 203),
        (gsp_rpc, "NV_VGPU_MSG_FUNCTION_NUM_FUNCTIONS", "550.163.01", 211),
        (gsp_rpc, "NV_VGPU_MSG_FUNCTION_NUM_FUNCTIONS", "595.45.04", 229),
        (gsp_rpc, "NV_VGPU_MSG_EVENT_NUM_EVENTS", "545.29.06", 0x101E),
        (rm, "NV_ESC_RM_CONTROL", "580.142", 0x2A),
        (rm, "NV_ESC_CARD_INFO", "580.142", 200),
        (uvm, "UVM_INITIALIZE", "580.142", 0x30000001),
        # These are libcuda's calls.
        (rm_ctrl_2080_fifo, "NV2080_CTRL_CMD_CE_GET_ALL_CAPS", "580.142", 0x20802A0A),
        (rm_ctrl_2080_gr, "NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER", "555.58.02", 0x2080121B),
        (rm_ctrl_channel, "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", "535.261.03", 0xC36F0108),
        (rm_ctrl_channel, "NVC36F_CTRL_GET_CLASS_ENGINEID", "550.163.01", 0xC36F0101),
        (rm_ctrl_2080_fifo, "NV2080_CTRL_CE_CAPS_CE_GRCE", "550.163.01", (0, 1)),
        (fsp, "NVDM_TYPE_COT", "580.142", 0x14),
    ],
)
def test_a_constant_is_what_that_release_has(module, name, release, value):
    assert constant(module, name, release) == value


@pytest.mark.parametrize(
    ("module", "name", "release"),
    [
        # From 550 on.
        (rm, "NV_ESC_WAIT_OPEN_COMPLETE", "545.29.06"),
        # Until 550.
        (rm_ctrl_channel, "NVC36F_CTRL_GET_CLASS_ENGINEID", "555.58.02"),
        (gsp_rpc, "NV_VGPU_MSG_EVENT_GSP_SEND_USER_SHARED_DATA", "545.29.06"),
    ],
)
def test_a_constant_that_a_release_lacks_is_refused(module, name, release):
    with pytest.raises(NotSupported, match=f"driver release {release} has no {name}"):
        constant(module, name, release)


def test_a_constant_nobody_has_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NV_ESC_NONSENSE"):
        constant(rm, "NV_ESC_NONSENSE", "580.142")


def test_flags_are_words_made_of_the_headers_ranges():
    flags = rm.NVOS33_FLAGS(access=rm.NVOS33_FLAGS_ACCESS_READ_ONLY, caching_type=2)
    # nvos.h: ACCESS 1:0, CACHING_TYPE 25:23
    assert int(flags) == 0x1000001
    assert int(rm_alloc.NVOS04_FLAGS(channel_type=1)) == 1


def test_descriptors_have_the_bits_that_captures_showed():
    """nvidia-rm.md, section 3: version, release and its enable bit in descriptors that the vendor's library made."""
    assert qmdv02_03.QMDV02_03.WIDTH == qmdv03_00.QMDV03_00.WIDTH == 2048
    assert qmdv04_00.QMDV04_00.WIDTH == qmdv05_01.QMDV05_01.WIDTH == 3072
    for word in (qmdv02_03.QMDV02_03, qmdv02_04.QMDV02_04, qmdv03_00.QMDV03_00):
        assert (word.FIELDS["qmd_major_version"].hi, word.FIELDS["qmd_version"].lo) == (583, 576)
    hopper = qmdv04_00.QMDV04_00
    assert (hopper.FIELDS["qmd_major_version"].hi, hopper.FIELDS["qmd_minor_version"].lo) == (583, 576)
    blackwell = qmdv05_00.QMDV05_00
    assert (blackwell.FIELDS["qmd_major_version"].hi, blackwell.FIELDS["qmd_minor_version"].lo) == (471, 464)
    assert qmdv02_03.QMDV02_03.FIELDS["release0_address_lower"].lo == 23 * 32
    assert qmdv02_03.QMDV02_03.FIELDS["release0_payload"].lo == 25 * 32
    assert qmdv03_00.QMDV03_00.FIELDS["release0_address_lower"].lo == 24 * 32
    assert qmdv03_00.QMDV03_00.FIELDS["release0_enable"].lo == 823
    buffers = qmdv03_00.QMDV03_00.FIELDS["constant_buffer_addr_lower"]
    assert (buffers.lo, buffers.count, buffers.stride) == (1024, 8, 64)


def test_a_version_of_the_descriptor_follows_the_class():
    base, ada = qmdv03_00.QMDV03_00.at(0xC6C0), qmdv03_00.QMDV03_00.at(0xC9C0)
    assert "release0_trap_type" not in base.FIELDS
    assert (ada.FIELDS["release0_trap_type"].hi, ada.FIELDS["release0_trap_type"].lo) == (828, 827)


def test_methods_lie_where_a_traced_client_sent_them():
    """nvidia-rm.md, section 3."""
    compute = importlib.import_module("ringup.autogen.nv.methods_compute")
    assert compute.METHODS[0xC7C0][compute.LOAD_INLINE_QMD_DATA] == (0x320, 4, 64)
    assert compute.METHODS[0xC7C0][compute.SET_INLINE_QMD_ADDRESS_A] == 0x318
    assert compute.METHODS[0xCBC0][compute.SEND_PCAS_A] == 0x2B4
    assert compute.METHODS[0xC7C0][compute.SET_REPORT_SEMAPHORE_A] == 0x1B00
    assert compute.METHODS[0xC7C0][compute.LOAD_INLINE_DATA] == 0x1B4
    copy = importlib.import_module("ringup.autogen.nv.methods_copy")
    assert copy.METHODS[0xC8B5][copy.LAUNCH_DMA] == 0x300
    launch = copy.LAUNCH_DMA(data_transfer_type=2, src_memory_layout=1, dst_memory_layout=1)
    assert int(launch) == 0x182
    host = importlib.import_module("ringup.autogen.nv.methods_host")
    assert host.METHODS[0xC56F][host.SEM_EXECUTE] == 0x6C
    assert int(host.DMA(sec_op=1, method_count=2, method_subchannel=4, method_address=0x300 // 4)) == 0x200280C0
    video = importlib.import_module("ringup.autogen.nv.methods_video")
    assert video.METHODS[0xC9B0][video.SET_APPLICATION_ID] == 0x200
    assert video.METHODS[0xC9B0][video.EXECUTE] == 0x300


def test_the_hevc_picture_set_up_is_where_the_vendors_decoder_put_it():
    """nvidia-rm.md, section 3: stream length at 0x30, width and height at 0x58."""
    assert nvdec.nvdec_hevc_pic_s.offset_of("stream_len") == 0x30
    assert nvdec.nvdec_hevc_pic_s.offset_of("pic_width_in_luma_samples") == 0x58


def test_registers_lie_where_the_chip_has_them():
    boot = importlib.import_module("ringup.autogen.nv.boot")
    falcon = importlib.import_module("ringup.autogen.nv.falcon")
    mmu = importlib.import_module("ringup.autogen.nv.mmu")
    assert boot.PLACES["ad102"][boot.NV_PMC_BOOT_0] == 0
    assert falcon.PLACES["ga102"][falcon.NV_PFALCON_FALCON_CPUCTL] == 0x100
    assert falcon.PLACES["ga102"][falcon.NV_PFALCON_FALCON_IMEMC][:2] == (0x180, 16)
    assert mmu.PLACES["tu102"][mmu.NV_PFB_PRI_MMU_WPR2_ADDR_HI] == 0x1FA828
    assert int(falcon.NV_PFALCON_FALCON_CPUCTL(startcpu=1)) == 2


def test_a_queue_element_ends_where_its_message_begins():
    element = gsp_queue.GSP_MSG_QUEUE_ELEMENT.at("535.261.03")
    # two 16-byte buffers, three words, aligned to 8
    assert element.offset_of("rpc") == 48
    view = element.view(bytearray(element.SIZE + 64))
    view.rpc.function = 76
    assert view.rpc.function == 76


GENERATED = [
    path.stem
    for path in sorted(importlib.resources.files("ringup.autogen.nv").iterdir(), key=lambda path: path.name)
    if path.name.endswith(".py") and path.name != "__init__.py"
]


@pytest.mark.parametrize("name", GENERATED)
def test_every_struct_of_every_release_can_be_laid_over_memory(name):
    module = importlib.import_module(f"ringup.autogen.nv.{name}")
    structs = [value for value in vars(module).values() if isinstance(value, type) and hasattr(value, "LAYOUT")]
    laid = 0
    for struct in structs:
        for release in getattr(module, "READ_FROM", ("",)):
            try:
                chosen = struct.at(release) if release else struct
            except NotSupported:
                continue
            laid += 1
            memory = bytearray(chosen.SIZE)
            chosen.view(memory)
    # Each struct has a layout in at least one release.
    assert laid >= len(structs)
