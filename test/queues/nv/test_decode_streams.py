"""NVIDIA's decoder on streams of clients: every word has its method's name, launch descriptors are found and shown.

Words are written out from the public class headers of open-gpu-doc (cl*.h), or were captured from Mesa 25.0.7's NVK on
a kernel shim without a card, for chipsets 0x162, 0x172 and 0x192, where nothing else is said.
"""

import struct

import pytest

from ringup.errors import NotSupported
from ringup.queues.nv.decode import NvDecoder, decode_nv
from ringup.queues.nv.decode_classes import CHIPS, classes_of, methods_of
from ringup.queues.nv.decode_qmd import VERSIONS, decode_descriptors

# NVK: caches, copies that fill a descriptor's memory, a macro call, the launch, caches
NVK = """
20018040 00000000 800020a6 80002509 80002091 20020509 00000000 00000000 90000369 20048100 0000003f fdfc0000 0000003f
fefc0000 20028106 00001000 00000001 838680c0 80140087 80142087 800004a2 80000014 8000015b 800020a6 8001015d a0070e22
0000003f fefc3000 0000003f fdf80000 0000003f fdf80800 00000100 200120ad 3ffdf808 800320b0 80140087 80142087 800004a2
"""
NVK_WORDS = [int(word, 16) for word in NVK.split()]
# The descriptor at 0x3ffdf80800 that it launches, by dword: 16 warps of one row. Turing's says version 2.2.
NVK_LAUNCH = {
    4: 0x40, 11: 0x400_0000, 12: 1, 13: 1, 14: 1, 17: 0x220C_0400, 18: 0x100_0030, 19: 0x1_0001, 20: 0x6_1303,
    23: 0x800_0000, 32: 0xFDF8_0000, 33: 0x400_003F, 34: 0xFFFC_5FC0, 35: 0x20_003F, 48: 0xFDF9_EC00, 49: 0x3F,
}  # fmt: skip
TURING_LAUNCH = {i: word for i, word in NVK_LAUNCH.items() if i != 23} | {18: 0x100_0022, 29: 0x800_0000}


def descriptor(words, count=64):
    return struct.pack(f"<{count}I", *(words.get(i, 0) for i in range(count)))


def methods(packets):
    return [method for packet in packets for method in packet.methods]


def names(packets):
    return [method.name for method in methods(packets)]


def notes(packets):
    return [thing.note for packet in packets for thing in (packet, *packet.methods, *packet.inner) if thing.note]


def inc(subchannel, address, *values):
    """A run of increasing methods. clc56f.h: operation 31:29, count 28:16, subchannel 15:13, method in dwords 11:0."""
    return [0x2000_0000 | len(values) << 16 | subchannel << 13 | address >> 2, *values]


@pytest.mark.parametrize(
    ("chip", "words", "version"),
    [("tu102", TURING_LAUNCH, "QMDV02_02"), ("ga102", NVK_LAUNCH, "QMDV03_00"), ("ad102", NVK_LAUNCH, "QMDV03_00")],
)
def test_a_stream_of_nvk_has_no_unknown_word(chip, words, version):
    asked = []

    def fetch(gpu_va, size_bytes):
        asked.append((gpu_va, size_bytes))
        return descriptor(words)

    # Turing launches by SEND_SIGNALING_PCAS_B, 0x2bc: invalidate and schedule.
    stream = [0x8003_20AF if word == 0x8003_20B0 and chip == "tu102" else word for word in NVK_WORDS]
    packets = NvDecoder(chip, fetch=fetch).decode(stream)
    assert [dword for packet in packets for dword in packet.raw] == stream
    assert notes(packets) == []
    assert asked == [(0x3F_FDF8_0800, 256)]
    (launch,) = [packet for packet in packets if packet.inner]
    (shown,) = launch.inner
    assert shown.name == version
    assert [shown.fields[f"cta_thread_dimension{i}"] for i in range(3)] == [256, 1, 1]
    assert [shown.fields[f"cta_raster_{axis}"] for axis in ("width", "height", "depth")] == [1, 1, 1]
    assert shown.fields["program_address_upper"] << 32 | shown.fields["program_address_lower"] == 0x3F_FDF9_EC00
    assert shown.names["constant_buffer_valid[1]"] == "TRUE"
    assert "constant_buffer_valid[2]" in shown.fields
    assert not any("reserved" in name and value for name, value in shown.fields.items())


# A launch by NVK of Mesa 26.1, chipsets 0x180 and 0x1b2: the descriptor's address, its launch, caches, a membar
LATER = """
200120ad 3ffbf5d8 800320b0 80142087 800024a2 901025a6 8000201e 2004200a 00000000 00000000 00000000 28000000
"""
HOPPER_LAUNCH = {
    13: 0x11, 17: 0x100_0000, 18: 0x4_0040, 19: 0x3E83, 32: 1, 33: 1, 34: 1, 36: 0x1_0100, 37: 0x818_0001,
    38: 0xFBF7_BC00, 39: 0x3F, 48: 0xFFEF_D740, 49: 0x400_0000, 50: 0xFFEF_DF7F, 51: 0x20_0000,
}  # fmt: skip
BLACKWELL_LAUNCH = {
    4: 0x11F_0000, 14: 0x50_0100, 32: 0xFFBF_7BC0, 33: 3, 34: 0x1_0100, 35: 0x2_1801, 36: 0x1B4_1808, 39: 1, 40: 1,
    41: 1, 42: 0xFFEF_D740, 43: 0x400_0000, 44: 0xFFEF_DF7F, 45: 0x20_0000, 58: 0x11,
}  # fmt: skip


@pytest.mark.parametrize(
    ("chip", "words", "version", "program"),
    [("gh100", HOPPER_LAUNCH, "QMDV04_00", ""), ("gb202", BLACKWELL_LAUNCH, "QMDV05_00", "_shifted4")],
)
def test_a_stream_of_a_later_nvk_has_no_unknown_word(chip, words, version, program):
    asked = []

    def fetch(gpu_va, size_bytes):
        asked.append((gpu_va, size_bytes))
        return descriptor(words, 96)

    packets = NvDecoder(chip, fetch=fetch).decode([int(word, 16) for word in LATER.split()])
    assert notes(packets) == []
    assert asked == [(0x3F_FBF5_D800, 384)]
    ((shown,),) = [packet.inner for packet in packets if packet.inner]
    assert shown.name == version
    assert [shown.fields[f"cta_thread_dimension{i}"] for i in range(3)] == [256, 1, 1]
    assert [shown.fields[f"grid_{axis}"] for axis in ("width", "height", "depth")] == [1, 1, 1]
    assert (shown.fields["register_count"], shown.fields["barrier_count"]) == (24, 1)
    at = (shown.fields[f"program_address_upper{program}"] << 32) | shown.fields[f"program_address_lower{program}"]
    assert at << (4 if program else 0) == 0x3F_FBF7_BC00
    assert not any("reserved" in name and value for name, value in shown.fields.items())
    assert names(packets)[-4:] == ["MEM_OP_A", "MEM_OP_B", "MEM_OP_C", "MEM_OP_D"]
    assert methods(packets)[-1].names["operation"] == "MEMBAR"


def test_the_words_of_nvk_mean_what_its_source_says():
    packets = decode_nv(NVK_WORDS, "ga102")
    assert packets[0].target == "4 AMPERE_DMA_COPY_B"
    assert names(packets)[:8] == [
        "NOP",
        "INVALIDATE_SKED_CACHES",
        "INVALIDATE_SAMPLER_CACHE_NO_WFI",
        "INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI",
        "INVALIDATE_SAMPLER_CACHE_NO_WFI",
        "INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI",
        "INVALIDATE_SHADER_CACHES_NO_WFI",
        "OFFSET_IN_UPPER",
    ]
    (copy,) = [method for method in methods(packets) if method.name == "LAUNCH_DMA"]
    assert copy.names["data_transfer_type"] == "NON_PIPELINED"
    assert copy.names["dst_memory_layout"] == "PITCH"
    assert copy.fields["multi_line_enable"] == 1
    # 0x3888: its 18th macro, with the call's data behind it
    (call,) = [packet for packet in packets if packet.name == "ONE_INC"]
    assert names([call]) == ["CALL_MME_MACRO[17]", "CALL_MME_DATA[17]"]
    assert call.methods[1].values == tuple(NVK_WORDS[27:33])
    # a host method on the subchannel of the 3D class
    (reference,) = [packet for packet in packets if names([packet]) == ["SET_REFERENCE"]]
    assert reference.target == "0 AMPERE_CHANNEL_GPFIFO_A"
    (action,) = [method for method in methods(packets) if method.name == "SEND_SIGNALING_PCAS2_B"]
    assert action.names == {"pcas_action": "INVALIDATE_COPY_SCHEDULE"}


def test_a_stream_like_libcudas_sets_up_compute_and_uploads_inline():
    stream = [
        *inc(1, 0x0, 0x0010_C7C0),
        *inc(1, 0x100, 0),
        *inc(1, 0x2A0, 0x7F4A, 0x0100_0000),
        0x8806_20C4,  # SET_SPA_VERSION 8.6
        *inc(1, 0x248, 0),
        *inc(1, 0x188, 0x7F, 0x1000),
        *inc(1, 0x180, 16, 1),
        *inc(1, 0x1B0, 0x41),
        0x6004_206D, 1, 2, 3, 4,
        *inc(1, 0x1B00, 0x7F, 0x2000, 7, 0x1000_0004),
    ]  # fmt: skip
    packets = decode_nv(stream, "ga102")
    assert notes(packets) == []
    assert names(packets) == [
        "SET_OBJECT",
        "NO_OPERATION",
        "SET_SHADER_SHARED_MEMORY_WINDOW_A",
        "SET_SHADER_SHARED_MEMORY_WINDOW_B",
        "SET_SPA_VERSION",
        "SET_CWD_REF_COUNTER",
        "OFFSET_OUT_UPPER",
        "OFFSET_OUT",
        "LINE_LENGTH_IN",
        "LINE_COUNT",
        "LAUNCH_DMA",
        "LOAD_INLINE_DATA",
        *(f"SET_REPORT_SEMAPHORE_{letter}" for letter in "ABCD"),
    ]
    found = {method.name: method for method in methods(packets)}
    assert found["SET_OBJECT"].names == {"nvclass": "AMPERE_COMPUTE_B"}
    assert found["SET_OBJECT"].fields == {"nvclass": 0xC7C0, "engine": 0x10}
    assert found["SET_SPA_VERSION"].fields == {"minor": 6, "major": 8}
    assert found["LAUNCH_DMA"].names["dst_memory_layout"] == "PITCH"
    assert found["LOAD_INLINE_DATA"].values == (1, 2, 3, 4)
    assert found["SET_REPORT_SEMAPHORE_D"].names["operation"] == "RELEASE"
    assert found["SET_REPORT_SEMAPHORE_D"].names["structure_size"] == "ONE_WORD"


# chip, words, names and values of one method: header, methods with literal offsets
FAMILIES = {
    # cl*6f.h. UVM's release: payload 5 at 0x1_0000_1000
    "host, turing": (
        "tu102",
        [0x2005_0017, 0x1000, 1, 5, 0, 0x0010_0001],
        ["SEM_ADDR_LO", "SEM_ADDR_HI", "SEM_PAYLOAD_LO", "SEM_PAYLOAD_HI", "SEM_EXECUTE"],
        {"operation": "RELEASE", "release_wfi": "EN", "release_timestamp": "DIS"},
    ),
    # clc86f.h, addresses of 57 bits, a wait of libcuda's between engines
    "host, hopper": (
        "gh100",
        [0x2005_0017, 0x1000, 0x1FF_FFFF, 5, 0, 0x1003],
        ["SEM_ADDR_LO", "SEM_ADDR_HI", "SEM_PAYLOAD_LO", "SEM_PAYLOAD_HI", "SEM_EXECUTE"],
        {"operation": "ACQ_CIRC_GEQ", "acquire_switch_tsg": "EN"},
    ),
    # not in clc86f.h, but nouveau sends it there
    "host, of the class before": ("gh100", [0x2001_0008, 0], ["NON_STALL_INTERRUPT"], None),
    "host, tlb": (
        "ga102",
        [0x2004_000A, 0x800, 0, 1, 0x4800_0000],
        ["MEM_OP_A", "MEM_OP_B", "MEM_OP_C", "MEM_OP_D"],
        {"operation": "MMU_TLB_INVALIDATE"},
    ),
    # clc5b5.h to clcab5.h: SET_SEMAPHORE, then LAUNCH_DMA of a semaphore alone, four words
    "copy": (
        "ad102",
        [0x2003_8090, 0, 0x1000, 5, 0x2001_80C0, 0x14],
        ["SET_SEMAPHORE_A", "SET_SEMAPHORE_B", "SET_SEMAPHORE_PAYLOAD", "LAUNCH_DMA"],
        {"data_transfer_type": "NONE", "semaphore_type": "RELEASE_FOUR_WORD_SEMAPHORE", "flush_enable": "TRUE"},
    ),
    "copy, hopper": ("gh100", [0x2001_81BF, 0], ["SET_MEMORY_SCRUB_PARAMETERS"], {"discardable": "FALSE"}),
    "copy, blackwell": ("gb202", [0x2002_8100, 0x1FF_FFFF, 0], ["OFFSET_IN_UPPER", "OFFSET_IN_LOWER"], None),
    # clc597.h: viewports are arrays with 0x20 bytes between elements, up to 0xc00, where others begin
    "3d, arrays": (
        "tu102",
        [*inc(0, 0xA20, 0), *inc(0, 0xBF0, 0), *inc(0, 0xC10, 0), *inc(0, 0x130C, 0x207)],
        ["SET_VIEWPORT_SCALE_X[1]", "SET_VIEWPORT_OFFSET_Y[15]", "SET_VIEWPORT_CLIP_HORIZONTAL[1]", "SET_DEPTH_FUNC"],
        {"v": "OGL_ALWAYS"},
    ),
    # clcb97.h: a method that Ada lacks
    "3d, hopper": ("gh100", [0x8000_01EB], ["SET_TEXTURE_HEADER_VERSION"], None),
    # clc797.h; NVK's macros: 0x114 pointer, 0x118 code
    "3d, macros": (
        "ga102",
        [0xA003_0045, 0, 0x18C0_0345, 0xF190_5B00, *inc(0, 0x11C, 1, 0x12), *inc(0, 0x3FF8, 7, 8)],
        [
            "LOAD_MME_INSTRUCTION_RAM_POINTER",
            "LOAD_MME_INSTRUCTION_RAM",
            "LOAD_MME_START_ADDRESS_RAM_POINTER",
            "LOAD_MME_START_ADDRESS_RAM",
            "CALL_MME_MACRO[255]",
            "CALL_MME_DATA[255]",
        ],
        None,
    ),
    # cl902d.h, cla140.h on the subchannels where NVK has them
    "2d": ("ga102", inc(3, 0x200, 0xCF, 1), ["SET_DST_FORMAT", "SET_DST_MEMORY_LAYOUT"], {"v": "PITCH"}),
    "inline": ("gb202", inc(2, 0x1B0, 0x1), ["LAUNCH_DMA"], {"dst_memory_layout": "PITCH"}),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_methods_of_each_class_have_their_names_and_values(family):
    chip, stream, expected, meanings = FAMILIES[family]
    packets = decode_nv(stream, chip)
    assert names(packets) == expected
    assert notes(packets) == []
    if meanings is not None:
        assert meanings.items() <= dict(methods(packets)[-1].names).items()


# clc7b0.h: one HEVC picture, as libnvcuvid orders it
PICTURE = [
    *inc(4, 0x200, 7),
    *inc(4, 0x400, 0x5_2057, 0x1000, 0x2000, 3),
    *inc(4, 0x414, 0x3000),
    *inc(4, 0x424, 0x4000),
    *inc(4, 0x430, 0x5000, 0x6000),
    *inc(4, 0x474, 0x7000),
    *inc(4, 0x584, 0x8000, 0x9000),
    *inc(4, 0x300, 0x100),
    *inc(4, 0x240, 0, 0x1000, 9),
    *inc(4, 0x304, 0),
]


@pytest.mark.parametrize("video", [0xC4B0, 0xC6B0, 0xC7B0, 0xB8B0, 0xC9B0, 0xCDB0, 0xCFB0, 0xD1B0])
def test_a_picture_for_the_video_decoder_is_named(video):
    packets = decode_nv(PICTURE, "ga102", classes={4: video})
    assert names(packets) == [
        "SET_APPLICATION_ID",
        "SET_CONTROL_PARAMS",
        "SET_DRV_PIC_SETUP_OFFSET",
        "SET_IN_BUF_BASE_OFFSET",
        "SET_PICTURE_INDEX",
        "SET_COLOC_DATA_OFFSET",
        "SET_NVDEC_STATUS_OFFSET",
        "SET_PICTURE_LUMA_OFFSET0",
        "SET_PICTURE_LUMA_OFFSET1",
        "SET_PICTURE_CHROMA_OFFSET0",
        "HEVC_SET_TILE_SIZES_OFFSET",
        "HEVC_SET_FILTER_BUFFER_OFFSET",
        "EXECUTE",
        "SEMAPHORE_A",
        "SEMAPHORE_B",
        "SEMAPHORE_C",
        "SEMAPHORE_D",
    ]
    found = {method.name: method for method in methods(packets)}
    assert found["SET_APPLICATION_ID"].names == {"id": "HEVC"}
    assert found["EXECUTE"].names["awaken"] == "ENABLE"
    assert found["SEMAPHORE_D"].names["operation"] == "RELEASE"


def inline_launch(subchannel, words, upper=0, count=64):
    """The words of a launch as libcuda's, up to Ada: a descriptor's address, and the descriptor behind it."""
    data = struct.unpack(f"<{count}I", descriptor(words, count))
    return inc(subchannel, 0x318, upper, 0x10, *data)


def test_an_inline_descriptor_is_decoded_with_its_run():
    packets = decode_nv(inline_launch(1, NVK_LAUNCH), "ga102")
    (launch,) = packets
    assert names(packets) == ["SET_INLINE_QMD_ADDRESS_A", "SET_INLINE_QMD_ADDRESS_B", "LOAD_INLINE_QMD_DATA[0..63]"]
    (shown,) = launch.inner
    assert (shown.name, shown.fields["cta_raster_width"], shown.note) == ("QMDV03_00", 1, "")
    # in two runs: it is whole at the second
    first, second = inc(1, 0x320, *launch.raw[3:13]), inc(1, 0x348, *launch.raw[13:])
    packets = decode_nv([*inc(1, 0x318, 0, 0x10), *first, *second], "ga102")
    assert [len(packet.inner) for packet in packets] == [0, 0, 1]
    assert packets[2].inner == launch.inner
    # the first run lost
    (packet,) = decode_nv(second, "ga102")
    assert packet.methods[0].note == "10 dwords of the descriptor were not loaded"


def test_a_long_inline_descriptor_is_decoded_on_hopper():
    # clcbc0.h: SET_INLINE_QMD_ADDRESS_A_INLINE_SIZE (bit 30) INLINE_384. Version 4.0 at bits 583:576.
    (launch,) = decode_nv(inline_launch(1, {18: 0x40, 39: 5}, 1 << 30, 96), "gh100")
    assert launch.methods[-1].name == "LOAD_INLINE_QMD_DATA[0..95]"
    assert launch.methods[0].names == {"inline_size": "INLINE_384"}
    assert [inner.name for inner in launch.inner] == ["QMDV04_00"]


def test_a_descriptor_that_the_stream_uploads_is_found():
    # as libcuda does on Hopper: two descriptors of 384 bytes are uploaded to 0x10_0000, then sent
    two = struct.unpack("<192I", descriptor({0: 1 << 23, 18: 0x40}, 96) + descriptor({0: 2 << 23, 18: 0x40}, 96))
    stream = [
        *inc(1, 0x188, 0, 0x10_0000),
        *inc(1, 0x180, 768, 1),
        *inc(1, 0x1B0, 0x41),
        0x6000_206D | 192 << 16, *two,
        *inc(1, 0x2B4, 0x1000),
        *inc(1, 0x2C0, 0xA),
        *inc(1, 0x2B4, 0x1001),
    ]  # fmt: skip
    packets = decode_nv(stream, "gh100")
    (sent,) = packets[4].inner
    assert (sent.name, sent.fields["qmd_type"], len(sent.raw)) == ("QMDV04_00", 1, 96)
    assert packets[5].methods[0].names["pcas_action"] == "INVALIDATE_PREFETCH_COPY_SCHEDULE"
    # 0x100100 is inside the upload as well, at its dword 64
    assert packets[6].inner[0].raw == two[64:160]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.module)
def test_a_descriptor_says_its_version(version):
    words = {version.low_bit // 32: (version.major << 4 | version.minor) << version.low_bit % 32}
    for compute in version.classes:
        data = struct.unpack(f"<{version.count_dwords}I", descriptor(words, version.count_dwords))
        (shown,) = decode_descriptors(data, compute)
        assert (shown.name, shown.note) == (version.module.upper(), "")
        assert len(shown.raw) == version.count_dwords
        assert shown.fields["qmd_major_version"] == version.major


def test_descriptors_of_another_version_and_cut_ones_are_noted():
    data = struct.unpack("<64I", descriptor({18: 0x17}))
    (shown,) = decode_descriptors(data, 0xC7C0)
    assert shown.note == "it says version 1.7; class 0xc7c0 knows 2.3, 2.4, 3.0"
    (shown,) = decode_descriptors(struct.unpack("<64I", descriptor(NVK_LAUNCH))[:50], 0xC7C0)
    assert shown.note == "truncated: it has 64 dwords, 50 are there"
    assert shown.fields["program_address_upper"] == 0x3F
    packets = NvDecoder("ga102").decode_descriptors(descriptor(NVK_LAUNCH) * 2 + b"ab")
    assert [(packet.offset_dwords, packet.name) for packet in packets] == [
        (0, "QMDV03_00"),
        (64, "QMDV03_00"),
        (128, "BYTES"),
    ]


def test_bits_of_no_field_are_shown():
    # clc7b5.h: SET_SEMAPHORE_A_UPPER is 16:0
    ((method,),) = (packet.methods for packet in decode_nv(inc(4, 0x240, 0x8000_0001), "ga102"))
    assert method.fields["reserved"] == 0x8000_0000
    assert method.note == "reserved bits 0x80000000"
    # clc7c0qmd.h, version 3.0: nothing stands at bit 328
    words = NVK_LAUNCH | {10: 1 << 8}
    (shown,) = decode_descriptors(struct.unpack("<64I", descriptor(words)), 0xC7C0)
    assert shown.fields["dword_10.reserved"] == 0x100


def test_the_class_of_a_subchannel_is_what_the_stream_binds():
    before = decode_nv(inc(4, 0x200, 7), "ga102")
    assert names(before) == ["UNKNOWN_0x0200"]
    stream = [*inc(4, 0, 0xC7B0), *inc(4, 0x200, 7), *inc(4, 0, 0xC7B5), *inc(4, 0x240, 7)]
    packets = decode_nv(stream, "ga102")
    assert names(packets) == ["SET_OBJECT", "SET_APPLICATION_ID", "SET_OBJECT", "SET_SEMAPHORE_A"]
    assert [packet.target for packet in packets[1:]] == [
        "4 NVC7B0_VIDEO_DECODER",
        "4 AMPERE_DMA_COPY_B",
        "4 AMPERE_DMA_COPY_B",
    ]
    assert names(decode_nv(inc(4, 0x200, 7), "ga102", classes={4: 0xC7B0})) == ["SET_APPLICATION_ID"]
    # one run binds and uses
    assert names(decode_nv(inc(1, 0, 0xC7C0), "ga102")) == ["SET_OBJECT"]


@pytest.mark.parametrize(
    ("class_id", "note"),
    [
        (0xC6C0, "ga102 has class AMPERE_COMPUTE_B instead"),
        (0xC797, ""),
        (0xC7B7, "no table of methods for class 0xc7b7"),
        (0x1234, "no table of methods for class 0x1234"),
    ],
)
def test_a_class_that_is_bound_and_is_not_the_chips_is_noted(class_id, note):
    packets = decode_nv([*inc(5, 0, class_id), *inc(5, 0x7FC, 0)], "ga102")
    assert packets[0].methods[0].note == note
    assert packets[1].note in ("", "1 unknown methods")


def test_classes_that_share_another_ones_names_say_so():
    (packet,) = decode_nv(inc(2, 0, 0xCD40), "gb202")
    assert packet.methods[0].note == "its methods are named as in KEPLER_INLINE_TO_MEMORY_B"
    assert names(decode_nv(inc(2, 0x1B4, 7), "gb202")) == ["LOAD_INLINE_DATA"]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_class_of_every_chip_has_names(chip):
    row = classes_of(chip)
    for class_id in (row.host, row.compute, row.copy, row.threed, row.twod, row.inline, row.video):
        table = methods_of(class_id)
        assert table is not None
        assert all(offset % 4 == 0 for offset in table)


def test_an_unknown_chip_is_refused():
    with pytest.raises(NotSupported, match="no classes are known of chip 'gk104'; known are tu102, "):
        NvDecoder("gk104")
