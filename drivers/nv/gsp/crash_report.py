"""Crash reports of GSP's processor ("CrashCat"), decoded: packets of 64-bit words that begin with a header each.

A report's first packet says who crashed, how and where; those behind it have registers and traces. The bytes are the
firmware's: sizes are bounded by what is there, and what cannot be read is said in `damaged`. Source: OGKM
nv-crashcat.h, nv-crashcat-decoder.h, libos_v2_crashcat.h, libos_v3_crashcat.h; crashcat_report.c,
crashcat_report_v1.c, crashcat_queue_v1.c.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from ringup.autogen.layout import Field, Word

SIGNATURE, VERSION = 0xDEAD, 1
WORD_BYTES = 8
# NV_CRASHCAT_MEM_UNIT_SIZE
UNIT_BYTES = (8, 1 << 10, 4 << 10, 64 << 10)
# NV_CRASHCAT_PACKET_TYPE
REPORT, CSRS, GPRS, TRACE, IO32 = range(5)
# words behind the header of the packets that have a fixed size
FIXED_WORDS = {REPORT: 7, CSRS: 7, GPRS: 31}
# NV_CRASHCAT_RISCV_MODE, as libos' reports call them; what CSRs of a mode begin with
MODES = {1: "monitor", 2: "kernel", 3: "task"}
PREFIXES = {1: "m", 2: "s"}
CSR_NAMES = ("status", "ie", "ip", "epc", "tval", "cause", "scratch")
GPR_NAMES = (
    "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2", "s3",
    "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
)  # fmt: skip
# NV_CRASHCAT_CAUSE_TYPE
EXCEPTION, TIMEOUT, PANIC = range(3)
CAUSES = {EXCEPTION: "exception", TIMEOUT: "timeout", PANIC: "panic"}
# NV_CRASHCAT_CONTAINMENT: how far the crash reaches
CONTAINMENTS = {1: "monitor", 2: "kernel", 3: "task", 4: "the core", 0xF: "nothing"}
# NV_CRASHCAT_IO_APERTURE
APERTURES = {1: "local I/O", 2: "external I/O"}
TRACES = ("stack", "program counter")
# of an implementation: its name in letters, the first one highest
LIBOS2, LIBOS3 = "LIBOS2.0", "LIBOS3.1"
# LibosPanicReason of each. Source: libos_v2_crashcat.h, libos_v3_crashcat.h
REASONS = {
    LIBOS2: {
        1: "unrecoverable task crash", 2: "unhandled state", 3: "invalid configuration", 4: "fatal hardware error",
        5: "insufficient resources", 6: "timeout", 7: "environment call failed", 8: "stack check failed",
        9: "memory error found by ASAN", 0xA: "test", 0xB: "programming error", 0xC: "assertion failed",
    },
    LIBOS3: {
        1: "unhandled state", 2: "invalid configuration", 3: "fatal hardware error", 4: "insufficient resources",
        5: "timeout", 6: "environment call failed", 8: "memory error found by ASAN", 0xA: "programming error",
        0xB: "assertion failed", 0xC: "unhandled trap", 0xD: "instruction access fault",
    },
}  # fmt: skip
# RISC-V privileged specification, "mcause"
EXCEPTIONS = {
    0: "instruction address misaligned", 1: "instruction access fault", 2: "illegal instruction", 3: "breakpoint",
    4: "load address misaligned", 5: "load access fault", 6: "store address misaligned", 7: "store access fault",
    8: "environment call from U-mode", 9: "environment call from S-mode", 0xB: "environment call from M-mode",
    0xC: "instruction page fault", 0xD: "load page fault", 0xF: "store page fault",
}  # fmt: skip
INTERRUPTS = {0: "software", 1: "timer", 2: "external"}
PRIVILEGES = {0: "user", 1: "supervisor", 3: "machine"}
UNSPECIFIED = 0xFF
# limits of ours: reports of one look, words of a trace, addresses of a line
MAX_REPORTS, MAX_TRACE, MAX_SHOWN = 16, 512, 8


class PacketHeader(Word, width=64):
    """NV_CRASHCAT_PACKET_HEADER. `meta` depends on the type."""

    signature = Field(15, 0)
    format_version = Field(19, 16)
    payload_unit_size = Field(21, 20)
    payload_size = Field(31, 22)
    type_ = Field(39, 32)
    meta = Field(63, 40)

    @property
    def is_valid(self) -> bool:
        """Whether a packet of a known version begins here."""
        return bool(self.signature == SIGNATURE and self.format_version == VERSION)

    @property
    def payload_bytes(self) -> int:
        """How many bytes follow."""
        return int(self.payload_size + 1) * UNIT_BYTES[self.payload_unit_size]


class StateMeta(Word):
    """The header's upper bits of packets with registers and traces: _RISCV_MODE, _TRACE_TYPE."""

    riscv_mode = Field(2, 0)
    trace_type = Field(3)


class IoMeta(Word):
    """The same of packets with registers of 32 bits: _APERTURE."""

    aperture = Field(1, 0)


class Identity(Word, width=64):
    """NV_CRASHCAT_REPORT_V1_REPORTER_ID and _SOURCE_ID; the task is of libos."""

    nvriscv_partition = Field(7, 0)
    nvriscv_ucode_id = Field(15, 8)
    riscv_mode = Field(18, 16)
    task_id = Field(31, 24)


class ReporterData(Word, width=64):
    """NV_CRASHCAT_REPORT_V1_REPORTER_DATA; the version's parts are of libos."""

    cl = Field(23, 0)
    minor = Field(27, 24)
    major = Field(31, 28)
    timestamp = Field(63, 32)


class SourceCause(Word, width=64):
    """NV_CRASHCAT_REPORT_V1_SOURCE_CAUSE; the reason is of libos."""

    type_ = Field(3, 0)
    containment = Field(7, 4)
    reason = Field(39, 32)


@dataclass(frozen=True, slots=True)
class Trace:
    """Virtual addresses, the newest first. `kind`: stack or program counter. `mode`: whose addresses they are."""

    kind: str
    mode: str
    addresses: tuple[int, ...]


@dataclass(slots=True)
class CrashReport:
    """One crash. `data`: of an exception, the cause register of RISC-V; of a panic, what its maker chose. `time_s`: of
    the processor's clock. Registers are by name, those of 32 bits by their address. `damaged`: what could not be read.
    """

    implementer: str
    version: str
    cause: str
    reason: str
    contained_in: str
    mode: str
    partition: int
    ucode: int
    task: int | None
    pc: int
    data: int
    time_s: int
    registers: dict[str, int] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    io: dict[str, dict[int, int]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        whose = f"{self.mode} {self.cause}".strip()
        task = "" if self.task is None else f", task {self.task}"
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{whose}{reason} at {self.pc:#x} (data {self.data:#x}) in partition {self.partition}, microcode "
            f"{self.ucode}{task}; {self.implementer} {self.version}, contained in {self.contained_in}"
        )

    def lines(self) -> Iterator[str]:
        """Yield lines for a report, the first says what happened."""
        yield str(self)
        for trace in self.traces:
            shown = " ".join(f"{address:#x}" for address in trace.addresses[:MAX_SHOWN])
            yield f"{trace.kind} trace: {shown}{' …' if len(trace.addresses) > MAX_SHOWN else ''}"
        yield from self.damaged


def decode(data: bytes) -> tuple[list[CrashReport], list[str]]:
    """Return the reports of a queue's bytes, in order, and what could not be read of them."""
    reports: list[CrashReport] = []
    lost: list[str] = []
    at = 0
    while at + WORD_BYTES <= len(data):
        head = PacketHeader(struct.unpack_from("<Q", data, at)[0])
        left = len(data) - at - WORD_BYTES
        problems = reports[-1].damaged if reports else lost
        if not head.is_valid:
            problems.append(f"no packet begins at byte {at:#x} ({int(head):#018x}); {left + WORD_BYTES} bytes are lost")
            break
        if head.payload_bytes > left:
            problems.append(f"a packet of {head.payload_bytes} bytes at byte {at:#x} has {left}")
            break
        payload = data[at + WORD_BYTES : at + WORD_BYTES + head.payload_bytes]
        if head.type_ == REPORT and len(reports) == MAX_REPORTS:
            lost.append(f"more than {MAX_REPORTS} reports; {left + WORD_BYTES} bytes are not read")
            break
        _take(head, payload, reports, problems)
        at += WORD_BYTES + head.payload_bytes
    return reports, lost


def _take(head: PacketHeader, payload: bytes, reports: list[CrashReport], problems: list[str]) -> None:
    """Take one packet in; `problems` gets what is wrong with it."""
    kind, count = int(head.type_), len(payload) // WORD_BYTES
    words = struct.unpack(f"<{count}Q", payload)
    if count != FIXED_WORDS.get(kind, count):
        problems.append(f"a packet of type {kind} has {count} words, not {FIXED_WORDS[kind]}")
    elif kind == REPORT:
        reports.append(_report(words))
    elif not reports:
        problems.append(f"a packet of type {kind} comes before any report")
    elif kind == CSRS:
        prefix = PREFIXES.get(StateMeta(head.meta & 0xF).riscv_mode, "x")
        reports[-1].registers.update(zip((prefix + name for name in CSR_NAMES), words, strict=True))
    elif kind == GPRS:
        reports[-1].registers.update(zip(GPR_NAMES, words, strict=True))
    elif kind == TRACE:
        meta = StateMeta(head.meta & 0xF)
        trace = Trace(TRACES[meta.trace_type], MODES.get(meta.riscv_mode, ""), words[:MAX_TRACE])
        reports[-1].traces.append(trace)
    elif kind == IO32:
        space = APERTURES.get(IoMeta(head.meta & 3).aperture, "")
        low = [(word >> 32, word & 0xFFFF_FFFF) for word in words[:MAX_TRACE]]
        reports[-1].io.setdefault(space, {}).update(low)
    else:
        problems.append(f"a packet of type {kind} ({count} words), which is not known")


def _report(words: tuple[int, ...]) -> CrashReport:
    signature, reporter, reporter_data, source, cause_word, pc, data = words
    name = signature.to_bytes(WORD_BYTES, "big")
    implementer = name.decode("ascii") if name.isascii() and name.decode("ascii").isprintable() else f"{signature:#x}"
    whose, said, cause = Identity(source), ReporterData(reporter_data), SourceCause(cause_word)
    is_libos = implementer in REASONS
    # libos leaves the source's partition out: the reporter's is meant
    place = Identity(reporter) if is_libos else whose
    reason = ""
    if cause.type_ == EXCEPTION:
        reason = _trap(data) if is_libos else ""
    elif cause.type_ == PANIC and is_libos:
        reason = REASONS[implementer].get(cause.reason, f"reason {cause.reason:#x}")
    task = int(whose.task_id) if is_libos and whose.task_id != UNSPECIFIED else None
    return CrashReport(
        implementer=implementer,
        version=f"{said.major}.{said.minor} ({said.cl})" if is_libos else f"{reporter_data & 0xFFFF_FFFF:#x}",
        cause=CAUSES.get(cause.type_, f"failure {cause.type_:#x}"),
        reason=reason,
        contained_in=CONTAINMENTS.get(cause.containment, "it does not say what"),
        mode=MODES.get(whose.riscv_mode, ""),
        partition=int(place.nvriscv_partition),
        ucode=int(place.nvriscv_ucode_id),
        task=task,
        pc=pc,
        data=data,
        time_s=int(said.timestamp),
    )


def _trap(cause: int) -> str:
    """Say in words what a cause register of RISC-V holds."""
    code = cause & 0x1F
    if not cause >> 63:
        return EXCEPTIONS.get(code, f"exception {code}")
    kind, privilege = INTERRUPTS.get(code >> 2), PRIVILEGES.get(code & 3)
    return f"{privilege} {kind} interrupt" if kind and privilege else f"interrupt {code}"
