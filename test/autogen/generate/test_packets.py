"""AMD packets: gcc's value of every macro and bit-field, and two indirect buffers that a production driver
submitted.
"""

import re
import subprocess

import pytest

from ringup.autogen.amd import pm4, pm4_events, pm4_queues, sdma_packets
from ringup.autogen.generate.amd.packets import generate_packets, opcode_facts, read_wanted
from ringup.autogen.generate.amd.pm4 import committed, from_struct, read_sources
from ringup.autogen.generate.amd.sdma import field_names, read_header
from ringup.autogen.layout import Word
from ringup.errors import HeaderError

AMDGPU = "drivers/gpu/drm/amd/amdgpu"
KFD = "drivers/gpu/drm/amd/amdkfd"
SDMA_HEADERS = {"vega10_sdma_pkt_open.h": (4, 4, 2), "sdma_v6_0_0_pkt_open.h": (6, 0, 0)}


def gcc(*arguments: str, text: str) -> str:
    """Run gcc over `text`."""
    command = ["gcc", *arguments, "-x", "c", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout


def macros(header) -> dict[str, str]:
    """Return every macro that a header defines as gcc lists them: name (with parameters) to body."""
    text = f'#include "{header}"\n'
    own = dict(re.findall(r"^#define (\S+?\(.*?\)|\S+) ?(.*)$", gcc("-E", "-dM", text=text), re.MULTILINE))
    builtin = dict(re.findall(r"^#define (\S+?\(.*?\)|\S+) ?(.*)$", gcc("-E", "-dM", text=""), re.MULTILINE))
    return {name: body for name, body in own.items() if name not in builtin}


def values(header, names) -> dict[str, int]:
    """Return what gcc computes for each expression, by one run of a program."""
    lines = "\n".join(f'printf("%u\\n", (unsigned)({name}));' for name in names)
    source = f'#include <stdint.h>\n#include <stdio.h>\n#include "{header}"\nint main(void) {{\n{lines}\nreturn 0; }}\n'
    return dict(zip(names, run(source), strict=True))


def run(source: str) -> list[int]:
    """Compile and run a program that prints numbers."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "probe")
        gcc("-w", "-O0", "-o", program, text=source)
        out = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout
    return [int(line) for line in out.split()]


@pytest.fixture(scope="module")
def amdgpu(headers):
    return headers("linux") / AMDGPU


@pytest.fixture(scope="module")
def pm4_sources(headers):
    return read_sources(headers("linux"), headers("mesa"))


@pytest.fixture(scope="module", params=SDMA_HEADERS)
def sdma_case(request, amdgpu):
    path = amdgpu / request.param
    plain = [name for name, body in macros(path).items() if "(" not in name and body]
    return SDMA_HEADERS[request.param], read_header(path), values(path, plain)


def test_every_sdma_field_has_the_dword_and_mask_that_gcc_computes(sdma_case):
    _, header, known = sdma_case
    stems = {name[: -len("_offset")] for name in known if name.endswith("_offset")}
    seen = set()
    for packet, fields in header.packets.items():
        for field in fields:
            stem = f"{packet}_{field.group}_{field.name}"
            dword, mask, shift = (known[f"{stem}_{end}"] for end in ("offset", "mask", "shift"))
            assert (1 << field.hi + 1) - (1 << field.lo) == mask << shift + 32 * dword, stem
            seen.add(stem)
    # vega10's header has one packet that is only a header and lies outside of any packet's definition.
    assert stems - seen <= {"SDMA_PKT_HEADER_op", "SDMA_PKT_HEADER_sub_op"}
    assert stems - seen == {one.name for one in header.rejected} & stems


def test_every_sdma_class_has_the_fields_of_each_versions_header(sdma_case, amdgpu):
    version, header, _ = sdma_case
    every = [read_header(amdgpu / name).packets for name in SDMA_HEADERS]
    classes = {name: word for name, word in vars(sdma_packets).items() if name.startswith("SDMA_PKT_")}
    assert len(classes) == 29
    for name, word in classes.items():
        if name not in header.packets:
            assert word not in sdma_packets.PLACES[version]
            continue
        names = field_names([packets[name] for packets in every if name in packets])
        expected = {names[f.group, f.name]: (f.hi, f.lo) for f in header.packets[name]}
        assert {key: (f.hi, f.lo) for key, f in word.at(version).FIELDS.items()} == expected, name
        assert sdma_packets.PLACES[version][word] == (max(hi for hi, _ in expected.values()) // 32 + 1,)


def test_every_sdma_opcode_has_gccs_value(sdma_case):
    version, _, known = sdma_case
    for name, value in known.items():
        if name.startswith(("SDMA_OP_", "SDMA_SUBOP_")):
            ours = sdma_packets.OPCODES[version].get(name, getattr(sdma_packets, name, None))
            assert ours == value, name


def test_a_copy_of_sdma_6_is_these_dwords():
    # sdma_v6_0.c, sdma_v6_0_emit_copy_buffer: op 1, sub-op 0, count - 1, 0, source, destination
    packet = sdma_packets.SDMA_PKT_COPY_LINEAR.at((6, 0, 0))(
        op=sdma_packets.SDMA_OP_COPY,
        sub_op=sdma_packets.SDMA_SUBOP_COPY_LINEAR,
        count=0x3FFFFF,
        src_addr_31_0=0x89ABCDE0,
        src_addr_63_32=0x1,
        dst_addr_31_0=0x10,
        dst_addr_63_32=0x2,
    )
    dwords = [int(packet) >> 32 * i & 0xFFFF_FFFF for i in range(7)]
    assert dwords == [0x00000001, 0x003FFFFF, 0, 0x89ABCDE0, 0x1, 0x10, 0x2]


def test_a_field_that_two_dwords_have_is_called_after_its_dword():
    assert "src_addr_31_0" in sdma_packets.SDMA_PKT_COPY_LINEAR.FIELDS
    # QUIRK: the header calls the field of dword CMP0_ADDR_END_LO cmp1_end_31_0, like that of CMP1_ADDR_END_LO
    fields = sdma_packets.SDMA_PKT_POLL_MEM_VERIFY.FIELDS
    assert {"cmp0_addr_end_lo_cmp1_end_31_0", "cmp1_addr_end_lo_cmp1_end_31_0", "cmp0_start_31_0"} <= fields.keys()


@pytest.mark.parametrize(("name", "version"), [("nvd.h", (11, 0, 0)), ("nvd.h", (12, 0, 0)), ("soc15d.h", (9, 4, 3))])
def test_every_pm4_opcode_has_gccs_value(amdgpu, name, version):
    plain = [m for m, body in macros(amdgpu / name).items() if m.startswith("PACKET3_") and "(" not in m]
    known = values(amdgpu / name, plain)
    opcodes = {
        m: value for m, value in known.items() if re.fullmatch(r"0x[0-9A-Fa-f]{2}", macro_body(amdgpu / name, m))
    }
    assert len(opcodes) > 60
    for macro, value in opcodes.items():
        assert getattr(pm4, macro.removeprefix("PACKET3_")) == value, macro
    assert set(pm4.OPCODES[version]) == set(opcodes.values())
    assert {f"PACKET3_{opcode}" for opcode in pm4.OPCODES[version].values()} <= opcodes.keys()


def macro_body(header, name: str) -> str:
    """The text of a macro."""
    return re.search(rf"#[ \t]*define[ \t]+{name}[ \t]+(\S+)", header.read_text())[1]


@pytest.mark.parametrize("name", ["nvd.h", "soc15d.h"])
def test_the_low_bit_of_every_helper_is_gccs(pm4_sources, amdgpu, name):
    found = pm4_sources.helpers(name)
    calls = {macro: f"{macro}(1)" if f"{macro}(x)" in macros(amdgpu / name) else macro for macro in found}
    known = values(amdgpu / name, list(calls.values()))
    assert {macro: 1 << low for macro, low in found.items()} == {macro: known[call] for macro, call in calls.items()}
    listed = {m.partition("(")[0] for m in macros(amdgpu / name) if m.startswith("PACKET3_") and m.endswith("(x)")}
    assert listed <= found.keys()


# Headers disagree about these, and a note says so. Any other disagreement fails the test.
DISAGREE = {
    # sid.h has the numbers of gfx6.
    ("sid.h", "PACKET3_INDIRECT_BUFFER_CONST"),
    ("sid.h", "PACKET3_LOAD_CONFIG_REG"),
    ("sid.h", "PACKET3_LOAD_CONTEXT_REG"),
    ("sid.h", "PACKET3_LOAD_SH_REG"),
    # The kernel describes QUERY_STATUS twice: by bit 25, and by bit 28 of the struct.
    ("soc15d.h", "PACKET3_QUERY_STATUS_ENG_SEL"),
    ("nvd.h", "PACKET3_QUERY_STATUS_ENG_SEL"),
}
UNPLACED = {
    "PACKET3_BASE_INDEX",
    "PACKET3_UNMAP_QUEUES_RB_WPTR",
    "PACKET3_SET_Q_PREEMPTION_MODE_IB_VMID",
    "PACKET3_SET_Q_PREEMPTION_MODE_INIT_SHADOW_MEM",
}


def test_sources_disagree_only_where_it_is_known(headers):
    _, rejected = generate_packets(headers("linux"), headers("mesa"))
    of_pm4 = [one for one in rejected if not one.where.partition(":")[0].endswith("pkt_open.h")]
    assert {one.name for one in of_pm4 if "no word of the manifest" in one.reason} == UNPLACED
    assert {(one.where, one.name) for one in of_pm4 if "no word of the manifest" not in one.reason} == DISAGREE


def kfd_places():
    wanted = read_wanted()
    specs = {**wanted["pm4"], **wanted["pm4_queues"]}
    found = {own["kfd"] for spec in specs.values() for own in (spec, spec.get("gfx9", {})) if own.get("kfd")}
    return sorted(found)


@pytest.mark.parametrize("place", kfd_places())
def test_every_bit_field_of_the_kernels_packets_lies_where_gcc_puts_it(headers, pm4_sources, place):
    struct, _, ordinal = place.partition(":")
    folder = headers("linux") / KFD
    tag = "union" if struct.isupper() else "struct"
    ours = from_struct(pm4_sources, place).fields
    text = (folder / f"kfd_pm4_headers_{'aldebaran' if 'aldebaran' in struct else 'ai'}.h").read_text()
    body = re.search(rf"{tag} {struct} \{{\n(.*?)\n\}};", text, re.DOTALL)[1]
    paths = {}
    for inner, name in re.findall(r"struct \{([^{}]*)\}\s*(\w*);", body):
        for member in re.findall(r"(\w+)\s*:\s*\d+;", inner):
            if not member.startswith("reserved") and (not name or re.fullmatch(rf"bitfields{ordinal}[abc]?", name)):
                paths[member] = f"{name}.{member}" if name else member
    probes = "".join(
        f'memset(&x, 0, sizeof x); x.{path} = ~0; printf("%u\\n", ((uint32_t *)&x)[{int(ordinal) - 1}]);\n'
        for path in paths.values()
    )
    includes = "".join(f'#include "{folder}/kfd_pm4_headers_{name}.h"\n' for name in ("ai", "aldebaran"))
    source = f"#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n{includes}"
    masks = dict(zip(paths, run(f"{source}int main(void) {{ {tag} {struct} x;\n{probes}return 0; }}"), strict=True))
    assert {name: (1 << hi + 1) - (1 << lo) for name, (hi, lo) in ours.items()} == masks


# What Mesa's RADV submits for one compute dispatch of 5x3x2 groups on a navi31: the preamble and the dispatch.
# Captured with RADV 25.0.7 on its no-op kernel shim.
PREAMBLE = """
c0027900 00000380 00000000 00000000 c0017600 0000020d 00000080 c0027600 00000216 ffffffff ffffffff c0027600 00000219
ffffffff ffffffff c0047600 00000224 00000000 00000000 00000000 00000000 c0057600 0000022b ffffffff ffffffff 00000000
00000000 00000040 c0017600 0000027d 00000000 c0037600 00000204 00000000 00000000 00000000 c0065800 00000000 ffffffff
00ffffff 00000000 00000000 0000000a 0000c3b1 c0017600 0000020a 00000001 c0031000 00000000 00000000 00000000 00000000
ffff1000 ffff1000 ffff1000 ffff1000
"""
DISPATCH = """
c0055000 60200000 00000000 ffff8000 00000000 ffff8000 80000060 c0017600 00000242 00040000 c0017600 0000020c 00000000
c0027600 00000212 602c0002 00000086 c0017600 00000228 00000000 c0017600 00000215 01000000 c0037600 00000207 00000040
00000001 00000001 c0031502 00000005 00000003 00000002 00002045 c0004600 00000407 c0065800 00000000 ffffffff 00ffffff
00000000 00000000 0000000a 0000c030 ffff1000 ffff1000 ffff1000 ffff1000 ffff1000
"""
NAVI31 = (11, 0, 0)


def decode(text: str) -> list[tuple[str, dict[str, int]]]:
    """Return packets by name, and the fields that are set in the dwords that have a class."""
    dwords = [int(word, 16) for word in text.split()]
    words = pm4.PLACES[NAVI31]
    found, at = [], 0
    while at < len(dwords):
        header = pm4.HEADER.at(NAVI31)(dwords[at])
        assert header.type == 3
        packet = pm4.OPCODES[NAVI31][header.opcode]
        # A NOP of one dword has the count 0x3FFF.
        size = 1 if header.count == 0x3FFF else header.count + 2
        fields = {"shader_type": 1} if header.shader_type else {}
        unknown(header)
        for word, (dword,) in words.items():
            if re.fullmatch(rf"{packet}_(?:{'|'.join(ENDINGS)})", word.__name__) and dword < size:
                value = word.at(NAVI31)(dwords[at + dword])
                unknown(value)
                fields |= {name: getattr(value, name) for name in value.FIELDS if getattr(value, name)}
        found.append((packet, fields))
        at += size
    assert at == len(dwords)
    return found


ENDINGS = ("CONTROL", "COMMAND", "INITIATOR", "COHER_SIZE_HI", "COHER_BASE_HI", "POLL_INTERVAL", "GCR_CNTL", "PWS_2", "OP", "DATA")  # fmt: skip


def unknown(word: Word) -> None:
    """Refuse bits that no field has."""
    known = 0
    for field in word.FIELDS.values():
        known |= field.mask
    assert not int(word) & ~known, f"{type(word).__name__} {int(word):#x}"


SH = "SET_SH_REG"
ACQUIRE = {"coher_size_hi": 0xFFFFFF, "poll_interval": 10}


def test_radvs_preamble_decodes_into_these_fields():
    assert decode(PREAMBLE) == [
        ("SET_UCONFIG_REG", {"reg_offset": 0x380}),
        (SH, {"reg_offset": 0x20D}),
        (SH, {"reg_offset": 0x216}),
        (SH, {"reg_offset": 0x219}),
        (SH, {"reg_offset": 0x224}),
        (SH, {"reg_offset": 0x22B}),
        (SH, {"reg_offset": 0x27D}),
        (SH, {"reg_offset": 0x204}),
        (
            "ACQUIRE_MEM",  # 0x0000c3b1
            {**ACQUIRE, "gli_inv": 1, "glm_wb": 1, "glm_inv": 1, "glk_inv": 1, "glv_inv": 1, "gl1_inv": 1, "gl2_inv": 1, "gl2_wb": 1},
        ),
        (SH, {"reg_offset": 0x20A}),
        ("NOP", {}),
        *[("NOP", {})] * 4,
    ]  # fmt: skip


def test_radvs_dispatch_decodes_into_these_fields():
    assert decode(DISPATCH) == [
        # a prefetch: copy 96 bytes from L2 to nowhere
        ("DMA_DATA", {"src_sel": 3, "dst_sel": 2, "byte_count": 0x60, "disable_wr_confirm": 1}),
        (SH, {"reg_offset": 0x242}),
        (SH, {"reg_offset": 0x20C}),
        (SH, {"reg_offset": 0x212}),
        (SH, {"reg_offset": 0x228}),
        (SH, {"reg_offset": 0x215}),
        (SH, {"reg_offset": 0x207}),
        # 0x2045: 0x1 | 0x4 | 0x40 | 0x2000
        ("DISPATCH_DIRECT", {"shader_type": 1, "compute_shader_en": 1, "force_start_at_000": 1, "order_mode": 1, "tunnel_enable": 1}),
        ("EVENT_WRITE", {"event_type": 7, "event_index": 4}),
        ("ACQUIRE_MEM", {**ACQUIRE, "glm_wb": 1, "glm_inv": 1, "gl2_inv": 1, "gl2_wb": 1}),  # 0x0000c030
        *[("NOP", {})] * 5,
    ]  # fmt: skip
    assert pm4_events.EVENT_TYPE_CS_PARTIAL_FLUSH == 7


@pytest.mark.parametrize(
    ("word", "fields", "dword"),
    [
        # gfx_v11_0.c, gfx_v11_0_ring_emit_wreg: WRITE_DATA_ENGINE_SEL(1) | WR_CONFIRM
        (pm4.WRITE_DATA_CONTROL, {"engine_sel": 1, "wr_confirm": 1}, 0x40100000),
        # gfx_v11_0_wait_reg_mem: memory, ==, pfp
        (pm4.WAIT_REG_MEM_CONTROL, {"mem_space": 1, "function": 3, "engine": 1}, 0x113),
        # gfx_v11_0_ring_emit_fence: SEQ(1) GLM_WB GL2_WB GLM_INV CACHE_POLICY(3) CACHE_FLUSH_AND_INV_TS_EVENT index 5
        (
            pm4.RELEASE_MEM_OP,
            {"seq": 1, "gl2_wb": 1, "glm_inv": 1, "glm_wb": 1, "cache_policy": 3, "event_type": 0x14, "event_index": 5},
            0x06603514,
        ),
        (pm4.RELEASE_MEM_DATA, {"data_sel": 2, "int_sel": 2}, 0x42000000),
        (pm4.INDIRECT_BUFFER_CONTROL, {"valid": 1, "vmid": 3, "ib_size": 0x40}, 0x03800040),
        # gfx11_kiq_map_queues: QUEUE(0) PIPE(0) ME(1) NUM_QUEUES(1)
        (pm4_queues.MAP_QUEUES_CONTROL, {"me": 1, "num_queues": 1}, 0x20040000),
        (pm4_queues.MAP_QUEUES_CONTROL2, {"doorbell_offset": 0x2A}, 0xA8),
        (pm4_queues.UNMAP_QUEUES_CONTROL, {"action": 1, "num_queues": 1}, 0x20000001),
    ],
)  # fmt: skip
def test_a_control_dword_as_the_kernel_computes_it(word, fields, dword):
    assert int(word(**fields)) == dword


def test_a_release_of_gfx9_has_other_bits_than_one_of_gfx11():
    gfx9 = pm4.RELEASE_MEM_OP.at((9, 4, 3))
    # gfx_v9_0_ring_emit_fence: EOP_TC_WB_ACTION_EN | EOP_TC_MD_ACTION_EN | event 0x14, index 5
    assert int(gfx9(tc_wb_action_ena=1, tc_md_action_ena=1, event_type=0x14, event_index=5)) == 0x00208514
    with pytest.raises(TypeError, match="has no field gl2_wb"):
        gfx9(gl2_wb=1)
    assert int(pm4.RELEASE_MEM_OP.at((12, 0, 1))(pws_enable=1)) == 1 << 31


def test_the_committed_modules_are_what_the_headers_give(headers):
    made, _ = generate_packets(headers("linux"), headers("mesa"))
    modules = {"pm4": pm4, "pm4_events": pm4_events, "pm4_queues": pm4_queues, "sdma_packets": sdma_packets}
    assert made.keys() == {f"amd/{name}.py" for name in modules}
    for name, module in modules.items():
        with open(module.__file__, encoding="utf-8") as file:
            assert file.read() == made[f"amd/{name}.py"], name


def test_opcodes_of_two_headers_are_the_same_numbers(pm4_sources):
    group, tables, _ = opcode_facts(pm4_sources)
    assert group.hexadecimal
    assert tables["gfx11"][0x37] == tables["gfx9"][0x37] == "WRITE_DATA"


@pytest.mark.parametrize("text", ["a", "a=", "a=1:", "a=x", "a:1=2"])
def test_a_committed_field_without_bits_is_refused(text):
    with pytest.raises(HeaderError, match="is not name=hi:lo"):
        committed(text, "")


def test_a_manifest_that_asks_for_a_missing_struct_or_dword_is_refused(pm4_sources):
    with pytest.raises(HeaderError, match="have no struct pm4_gone"):
        from_struct(pm4_sources, "pm4_gone:2")
    with pytest.raises(HeaderError, match="no bit-field in dword 5"):
        from_struct(pm4_sources, "pm4_mes_map_queues:5")


def test_a_missing_or_bloated_sdma_header_is_named(tmp_path):
    with pytest.raises(HeaderError, match=r"no SDMA packets in gone\.h"):
        read_header(tmp_path / "gone.h")
    (tmp_path / "big.h").write_bytes(b"\n" * (5 << 20))
    with pytest.raises(HeaderError, match=r"big\.h: 5242880 bytes"):
        read_header(tmp_path / "big.h")
