"""The check of a card through NVIDIA's kernel driver: on a model of that driver, and where something is wrong."""

import json
import sys
import time
from functools import partial

import pytest

from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.system import ModelSystem
from ringup.errors import CardBusy, NoSuchCard, NotSupported, RingupError, TransportError
from ringup.queues.nv import cubin
from ringup.silicon import nvidia_kernel
from ringup.tools.bench import metal_nv
from ringup.tools.bench.metal import golden, programs, recording
from ringup.tools.bench.metal.host import Host, vendor_libraries
from ringup.tools.bench.metal.masks import Masks
from ringup.tools.bench.metal.steps import BudgetSpent, Report, Run, Stage, StepRow, bounded
from ringup.tools.common import sass_text

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
SERIAL = "1650522001234"
SMI = f"<gpu><uuid>{UUID}</uuid><serial>{SERIAL}</serial><fan>{SERIAL}</fan></gpu>"


def steps_of(path):
    """Return the report's steps, each of which is a line of its own."""
    text = path.read_text(encoding="utf-8")
    whole = json.loads(text)
    lines = [json.loads(line.rstrip(",")) for line in text.splitlines() if line.startswith('{"stage"')]
    assert lines == whole["steps"]
    return whole, lines


def test_the_whole_check_runs_on_a_model_and_leaves_nothing(tmp_path):
    kernel = nvidia_kernel("ga102")
    out = tmp_path / "report.json"
    work, report = metal_nv.made("virtual:ga102@nvidia", out, small=True, say=lambda text: None)
    work.open_path = lambda: NvidiaDevice("nvidia:0", 0, ModelSystem(kernel))
    assert metal_nv.run(work, report) == 0
    whole, lines = steps_of(out)
    assert {line["stage"] for line in lines} == set(range(13))
    assert [line for line in lines if line["result"] == "failed"] == []
    assert {line["stage"] for line in lines if line["result"] == "ok"} == {0, 2, 3, 4, 5, 6, 7, 9, 11, 12}
    assert all(line["took_s"] <= line["budget_s"] for line in lines)
    assert whole["summary"]["failed"] == 0
    told = {line["step"]: line.get("figures") for line in lines}
    statuses = told["mistakes that the resource manager refuses"]
    assert len(statuses) == 8
    assert all(answer.startswith("NV_ERR_") for answer in statuses.values())
    assert "0x7f00000000" in told["a load from an address of nothing"]["error"]
    assert told["a card and an address space are registered"]["UVM_REGISTER_GPU"].startswith("NV_OK")
    # what the driver has of the process, and what names the card
    assert not kernel.files
    assert not kernel.owners
    assert not kernel.card.violations
    assert "d997a846769475ce8d9c299c4f6eb249" not in out.read_text(encoding="utf-8")
    kernel.end()


def test_on_hopper_all_of_the_check_runs_but_kernels(tmp_path):
    """The model of that chip has no shader cores: a launch is an error of its channel."""
    out = tmp_path / "report.json"
    work, report = metal_nv.made("virtual:gh100@nvidia", out, small=True, say=lambda text: None)
    assert metal_nv.run(work, report) != 0
    whole, lines = steps_of(out)
    assert {line["stage"] for line in lines} == set(range(13))
    (failed,) = (line for line in lines if line["result"] == "failed")
    assert (failed["step"], failed["stage"]) == ("vectors are added", 7)
    assert "GR_CLASS_ERROR" in failed["error"]
    assert {line["stage"] for line in lines if line["result"] == "ok"} == {0, 2, 3, 4, 5, 6, 7, 9, 12}
    assert whole["summary"]["failed"] == 1


@pytest.mark.parametrize(("card", "error"), [("virtual:ga999@nvidia", NoSuchCard), ("virtual:navi31", NotSupported)])
def test_a_card_that_is_not_there_or_not_the_drivers_fails_and_is_reported(tmp_path, capsys, card, error):
    out = tmp_path / "report.json"
    assert metal_nv.main(["--small", "--card", card, "--out", str(out)]) == error.exit_code
    whole, lines = steps_of(out)
    assert whole["summary"]["first_failure"].startswith("2 what the card is: ")
    assert {line["stage"]: line["result"] for line in lines}[7] == "left out"
    assert "1 failed" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("words", [["--limit", "0"], ["--limit", "601"], ["--out", "/no/such/folder/report.json"]])
def test_wrong_words_are_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        metal_nv.main(words)
    assert capsys.readouterr().err


class StubHost(Host):
    """A machine whose tools answer what a test says."""

    def __init__(self, root, answers):
        super().__init__(tools=True, kernel=Kernel(root))
        self.answers = answers

    def tool(self, name):
        return name if name in self.answers else super().tool(f"no-such-{name}")

    def output(self, argv, timeout_s, environment=None):
        return self.answers[argv[0]](argv)


def machine_with(tmp_path, answers):
    """Return the work and the report of a machine with nvidia-smi and a driver's files."""
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(f"Model: \t\t NVIDIA H200\nGPU UUID: \t {UUID}\n")
    host = StubHost(tmp_path, {"nvidia-smi": answers})
    return metal_nv.made("nvidia:0", tmp_path / "report.json", small=True, say=lambda text: None, host=host)


def test_it_refuses_while_somebody_else_computes(tmp_path):
    work, report = machine_with(tmp_path, lambda argv: SMI if "-x" in argv else "4711, /home/somebody/train\n")
    work.open_path = lambda: pytest.fail("the card was opened")
    assert metal_nv.run(work, report) == CardBusy.exit_code
    _, lines = steps_of(tmp_path / "report.json")
    assert "4711" in next(line["error"] for line in lines if line["result"] == "failed")


def test_a_process_with_unified_memory_open_counts_as_one(tmp_path):
    folder = tmp_path / "proc/4712/fd"
    folder.mkdir(parents=True)
    (folder / "7").symlink_to("/dev/nvidia-uvm")
    (folder.parent / "comm").write_text("train\n")
    assert Host(tools=True, kernel=Kernel(tmp_path)).computing() == ["4712 train"]


def test_serial_numbers_and_uuids_are_in_no_file(tmp_path):
    work, report = machine_with(tmp_path, lambda argv: SMI if "-x" in argv else "")
    stages = (metal_nv.STAGES[0],)
    assert metal_nv.run(work, report, stages=stages) == 0
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"report.json", "report.nvidia-smi.xml"}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert SERIAL not in text
        assert UUID.removeprefix("GPU-") not in text


def test_masks_keep_the_length_of_bytes_and_learn_from_texts():
    masks = Masks("a-host")
    masks.learn_from(f"GPU UUID: \t {UUID}\nSerial Number : {SERIAL}\n")
    raw = bytes.fromhex(UUID.removeprefix("GPU-").replace("-", ""))
    data = b"<" + raw + b"|" + SERIAL.encode() + b"|a-host|" + UUID.encode() + b">"
    seen = masks.data(data)
    assert len(seen) == len(data)
    assert not any(secret in seen for secret in (raw, SERIAL.encode(), b"a-host", UUID[4:].encode()))
    assert masks.plain({"A-HOST": [f"on a-host: {SERIAL}", 3, raw.hex()]}) == {
        "masked": ["on masked: masked", 3, "masked"]
    }
    # what stands for nothing is no secret
    masks.learn("N/A")
    assert masks.text("N/A or 0") == "N/A or 0"


@pytest.mark.parametrize("target", sass_text.TARGETS)
def test_its_kernels_are_written_for_every_target_up_to_hopper(target):
    made = cubin.Cubin(programs.cubin(target), target)
    assert set(made.kernels) == {"add", "reverse", "counts", "local", "load"}


# --- the run through stages -------------------------------------------------------------------------------------------
def run_of(stages, limit_s=10.0):
    report = Report(None, Masks(), {})
    return Run(None, report, limit_s).through(stages), report.lines


def fails(work):
    raise NoSuchCard("it is not there")


def test_a_failure_ends_its_stage_and_those_that_need_it_but_no_other():
    did = []
    stages = (
        Stage(1, "one", (StepRow("a", 1, fails), StepRow("b", 1, lambda work: pytest.fail("it ran")))),
        Stage(2, "two", (StepRow("c", 1, lambda work: pytest.fail("it ran")),), needs=(1,)),
        Stage(3, "three", (StepRow("d", 1, lambda work: {"x": 1}),)),
        Stage(4, "end", (StepRow("e", 1, fails), StepRow("f", 1, lambda work: did.append(1) or {})), always=True),
    )
    status, lines = run_of(stages)
    assert status == NoSuchCard.exit_code
    assert [(line["step"], line["result"]) for line in lines] == [
        ("a", "failed"), ("two", "left out"), ("d", "ok"), ("e", "failed"), ("f", "ok"),
    ]  # fmt: skip
    assert did == [1]


def test_an_interruption_still_gives_things_back():
    def interrupted(work):
        raise KeyboardInterrupt

    report = Report(None, Masks(), {})
    stages = (
        Stage(1, "one", (StepRow("a", 1, interrupted),)),
        Stage(2, "two", (StepRow("b", 1, lambda work: pytest.fail("it ran")),)),
        Stage(3, "end", (StepRow("c", 1, lambda work: {}),), always=True),
    )
    with pytest.raises(KeyboardInterrupt):
        Run(None, report, 10.0).through(stages)
    assert [(line["step"], line["result"]) for line in report.lines] == [("a", "failed"), ("c", "ok")]


def test_a_step_that_takes_longer_than_its_budget_is_ended():
    status, lines = run_of((Stage(1, "one", (StepRow("a", 0.02, lambda work: time.sleep(5)),)),))
    assert status == RingupError.exit_code
    assert "longer than its 0.0 s" in lines[0]["error"]
    assert lines[0]["took_s"] < 2


def test_nothing_but_the_end_begins_when_the_time_is_over():
    _, lines = run_of(
        (Stage(1, "a", (StepRow("a", 1, fails),)), Stage(2, "end", (StepRow("e", 1, dict),), always=True)), 0
    )
    assert "time of the whole run is over" in lines[0]["error"]


def test_an_alarm_of_somebody_else_stays():
    with pytest.raises(BudgetSpent), bounded(5), bounded(0.01):
        time.sleep(1)


# --- the logger -------------------------------------------------------------------------------------------------------
def test_the_logger_records_calls_with_what_they_point_to(tmp_path):
    host = Host(tools=True)
    library = golden.build(host, tmp_path, "535.261.03")
    # NVOS54_PARAMETERS: a control whose parameters are 8 bytes; /dev/zero takes no calls
    program = """
import ctypes, fcntl, mmap, os, struct
node = os.open("/dev/zero", os.O_RDWR)
os.close(os.open("/dev/null", os.O_RDWR))
inner = ctypes.create_string_buffer(b"ringup!!", 8)
body = bytearray(struct.pack("<IIIIQII", 1, 2, 0x20800403, 0, ctypes.addressof(inner), 8, 0))
try:
    fcntl.ioctl(node, 0xC020462A, body)
except OSError:
    pass
# an address of nothing is no reason to die
body[16:24] = struct.pack("<Q", 64)
try:
    fcntl.ioctl(node, 0xC020462A, body)
except OSError:
    pass
mmap.mmap(node, 4096, flags=mmap.MAP_PRIVATE).close()
os.close(node)
print("done")
"""
    said, recordings = golden.record(host, library, [sys.executable, "-c", program], tmp_path / "calls", "/dev/zero")
    assert said == "done\n"
    (data,) = recordings
    calls = list(recording.read(data))
    assert [call.kind.name for call in calls][:3] == ["OPEN", "IOCTL", "IOCTL"]
    assert "MAP" in [call.kind.name for call in calls]
    opened, control, wild = calls[:3]
    assert opened.before == b"/dev/zero"
    assert (control.request, control.result, control.name) == (0xC020462A, -1, "0xc020462a 0x20800403")
    assert len(control.before) == 32
    assert control.params_before == control.params_after == b"ringup!!"
    assert wild.params_before == b""
    # a file that was cut short ends with its last whole record; another file is refused
    assert len(list(recording.read(data[:-1]))) == len(calls) - 1
    with pytest.raises(TransportError, match="begins no record"):
        list(recording.read(bytes(200)))


def test_a_recording_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "MAX_PROCESS_BYTES", 1000)
    host = Host(tools=True)
    library = golden.build(host, tmp_path, "570.195.03")
    program = "import os\nfor _ in range(50): os.close(os.open('/dev/zero', os.O_RDWR))"
    _, (data,) = golden.record(host, library, [sys.executable, "-c", program], tmp_path / "calls", "/dev/zero")
    assert 0 < len(data) <= 1000


def test_sizes_of_unified_memorys_calls_follow_the_release():
    # uvm_ioctl.h: UVM_FREE takes 24 bytes until 580, 16 from 590 on
    assert "{ 0x22u, 24 }, /* UVM_FREE */" in recording.uvm_sizes("535.261.03")
    assert "{ 0x22u, 16 }, /* UVM_FREE */" in recording.uvm_sizes("590.48.01")


def test_a_library_of_the_vendor_is_noticed():
    maps = (
        "7f00-7f01 r-xp 00000000 08:01 42    /usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03\n"
        "7f01-7f02 r-xp 00000000 08:01 43    /usr/lib/x86_64-linux-gnu/libc.so.6\n"
        "7f02-7f03 rw-p 00000000 00:00 0 \n"
    )
    assert vendor_libraries(maps) == ["/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03"]


def test_a_tool_that_does_not_end_is_ended_with_its_children(tmp_path):
    mark = tmp_path / "pid"
    with pytest.raises(RingupError, match=r"had not ended after 0.3 s"):
        Host(tools=True).output(["sh", "-c", f"sleep 60 & echo $! > {mark}; wait"], 0.3)
    child = int(mark.read_text())
    state = partial(open, f"/proc/{child}/stat", encoding="utf-8")
    for _ in range(100):
        try:
            with state() as file:
                if file.read().split()[2] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {child} is still there")
