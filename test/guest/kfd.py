"""`kfd:0` on a real kernel: ringup uses a card that Linux's unmodified amdgpu drives, through /dev/kfd.

The tests build on each other, in this order: what is listed and who may open it; copies, kernels and tensors; two
processes, one that is killed, one that faults beside a healthy one; a kernel that never ends; a reset of the card. Each
also checks the card: none may leave a violation in it, except the faults that a test causes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import boot_files
import pytest
from kfd_story import DEVICE, LOAD_S, RUN_S, SHARING, SQUARES, Story, answer, booted, metal

from ringup.errors import NoSuchCard, NotSupported, PermissionNeeded


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with booted(tmp_path_factory.mktemp("kfd"), "navi31") as story:
        absent = story.ringup("up kfd:0")
        assert absent.status == NoSuchCard.exit_code, absent.output
        assert "amdgpu is not loaded" in absent.output
        story.plug(1)
        yield story


@pytest.fixture(autouse=True)
def no_violations(story: Story) -> Iterator[None]:
    yield
    assert story.served.violations() == []


def test_it_is_listed_beside_the_card_that_amdgpu_holds(story):
    listed = {row["name"]: row for row in json.loads(story.ringup("list --json").output)}
    row = listed["kfd:0"]
    assert row["skipped"] == ""
    assert "1002:744c gfx1100, 24560 MiB" in row["description"]
    assert "amdgpu" in listed[f"pci:{story.guest.address(1)}"]["skipped"]
    lines = json.loads(story.ringup("doctor --json").output)
    assert next(line for line in lines if line["what"] == "kfd:0")["state"] == "fine"


def test_it_comes_up_beside_amdgpu(story):
    said = answer(story.ringup("up kfd:0 --json"))
    assert said["moved_bytes"] == 1 << 20
    card = said["card"]
    core = story.served.cards[0].chip.gc.core
    assert (card["chip"], card["target"], card["found"]) == ("navi31", "gfx1100", "driven by amdgpu")
    assert (card["compute_units"], card["shader_engines"]) == (core.compute_units, 6)
    assert (card["wave_size"], card["lds_bytes"], card["vram_bytes"]) == (32, 64 << 10, story.vram_bytes)
    refused = story.ringup(f"up kfd:0 --firmware {boot_files.CHECKOUT}")
    assert refused.status == NotSupported.exit_code
    assert "amdgpu has loaded the system's already" in refused.output


def test_the_render_group_suffices_and_is_named_where_it_lacks(story):
    story.guest.check("chgrp video /dev/kfd /dev/dri/renderD128; chmod 660 /dev/kfd /dev/dri/renderD128")
    for folder in Path(sys.executable).resolve().parents:
        story.guest.check(f"chmod o+x {folder}")
    groups = "env HOME=/tmp setpriv --reuid=nobody --regid=nogroup"
    said = answer(story.ringup("up kfd:0 --json", before=f"{groups} --groups=video"))
    assert said["moved_bytes"] == 1 << 20
    refused = story.ringup("up kfd:0", before=f"{groups} --clear-groups")
    assert refused.status == PermissionNeeded.exit_code, refused.output
    assert "/dev/kfd" in refused.output
    assert "add yourself to group video" in refused.output
    assert "Traceback" not in refused.output


def test_kernels_tensors_memory_and_profiles(story):
    done = story.python(
        SQUARES
        + f"""
import mmap
code = open({str(story.code)!r}, "rb").read()
with ringup.open("kfd:0") as card:
    program = card.load(code, "squares")
    say("SQUARES", [squares(card, program, count) for count in (1, 64, 10007)])
    data = random.Random(1).randbytes(3 << 20)
    with card.alloc(3 << 20) as far:
        card.copy.upload(far, data).wait()
        say("COPIED", card.copy.download(far) == data)
    with card.alloc(8192, visible=True, name="seen") as seen, card.alloc(8192, "host") as near:
        seen.view[:] = data[:8192]
        card.copy.copy_buffer(near, seen).wait()
        say("VISIBLE", bytes(near.view) == data[:8192])
        card.copy.fill(seen, 0x11223344).wait()
        say("SEEN", bytes(seen.view) == bytes.fromhex("44332211") * 2048)
    pages = mmap.mmap(-1, 16384)
    pages[:] = data[:16384]
    pinned = card.pin(pages)
    with card.alloc(16384) as copy:
        card.copy.copy_buffer(copy, pinned).wait()
        card.copy.fill(pinned, 0, size_bytes=4096).wait()
        say("PINNED", card.copy.download(copy) == data[:16384], pages[:4096] == bytes(4096), pages[4096:] == data[4096:16384])
    pinned.free()
    # arrays that begin inside a page and share pages: no copy, at the CPU's address where that is free
    numbers, squared = np.arange(10007, dtype=np.uint32), np.zeros(10007, np.uint32)
    with card.pin(numbers) as source, card.pin(squared) as target:
        stream = card.compute.stream()
        stream.dispatch(program["square"], -(-10007 // 64), 64, [target, source, 10007])
        card.compute.submit(stream).wait()
        say("NUMPY", bool(np.array_equal(squared, numbers * numbers)), source.gpu_va == numbers.ctypes.data)
    # so many dispatches that they run from an indirect buffer, and a kept stream that is changed
    with card.alloc(256) as source, card.alloc(256) as target:
        card.copy.upload(source, np.arange(64, dtype=np.uint32)).wait()
        stream = card.compute.stream()
        for _ in range(400):
            stream.dispatch(program["square"], 1, 64, [target, source, 64])
            stream.barrier()
        card.compute.submit(stream).wait()
        say("LONG", stream.size_bytes > 16384, card.copy.download_array(target, np.uint32, 64)[9] == 81)
        stream = card.compute.stream()
        stream.dispatch(program["square"], 1, 64, [target, source, 0])
        kept = card.compute.keep(stream)
        card.copy.fill(target, 7).wait()
        kept.patch_args(program["square"].arg_offset(2), np.uint32(5))
        kept.submit().wait()
        say("KEPT", card.copy.download_array(target, np.uint32, 7).tolist() == [0, 1, 4, 9, 16, 7, 7])
        kept.free()
    other, third = card.new_compute_queue(), card.copies[1]
    with card.alloc(4096) as buffer:
        card.copy.fill(buffer, 0).wait()
        point = None
        for value in range(1, 31):
            queue = (card.compute, other)[value % 2]
            stream = queue.stream()
            if point is not None:
                stream.wait_for(point)
            stream.append(stream.pm4.write_data(buffer.gpu_va, value))
            point = queue.submit(stream)
        third.wait_for(point)
        say("ORDERED", third.download_array(buffer, np.uint32, 1)[0] == 30)
    other.close()
    with card.profile() as profile:
        squares(card, program)
    spans = {{span.name for span in profile.spans()}}
    say("PROFILE", any("square" in name for name in spans))
    a, b = (np.random.default_rng(n).random((48, 48), np.float32) for n in (1, 2))
    product = (card.tensor(a) @ card.tensor(b)).numpy()
    say("TENSOR", bool(np.abs(product - a @ b).max() < 1e-4))
    stats = card.stats().as_dict()
    say("STATS", stats["memory"]["vram"]["free_bytes"] > 1 << 30, stats["sensors"]["vram_total_bytes"] > 1 << 30)
    say("REPORT", card.report().cause == "", "of amdkfd" in str(card.report()))
    held = card.alloc(4096)
try:
    held.view
except ValueError as error:
    say("FREED", "freed" in str(error))
# the same process opens it again: the kernel's context is the old one
with ringup.open("kfd:0") as card:
    say("AGAIN", squares(card, card.load(code, "squares")))
    try:
        ringup.open("kfd:0")
    except RingupError as error:
        say("TWICE", type(error).__name__)
"""
    )
    assert done.status == 0, done.output
    said = dict(line.partition(" ")[::2] for line in done.output.splitlines())
    assert said.pop("TWICE") == "CardBusy"
    assert said.pop("SQUARES") == "[True, True, True]"
    names = "COPIED VISIBLE SEEN PINNED NUMPY LONG KEPT ORDERED PROFILE TENSOR STATS REPORT FREED AGAIN"
    assert set(said) == set(names.split())
    assert {word for words in said.values() for word in words.split()} == {"True"}, done.output


def test_memory_of_the_process_is_shared_where_the_kernel_can(story):
    """Linux 6.12 of Debian 12 is built without HSA_AMD_SVM, that of newer Debians with it."""
    done = story.python(
        SQUARES
        + SHARING
        + f"""
with ringup.open("kfd:0") as card:
    program = card.load(open({str(story.code)!r}, "rb").read(), "squares")
    try:
        say("SHARED", *sharing(card, program))
    except RingupError as error:
        say("REFUSED", type(error).__name__, error)
"""
    )
    assert done.status == 0, done.output
    capability = story.guest.check(r"sed -n 's/^capability //p' /sys/class/kfd/kfd/topology/nodes/1/properties")
    # kfd_sysfs.h, HSA_CAP_SVMAPI_SUPPORTED
    if int(capability) & 0x0800_0000:
        assert done.output.split() == ["SHARED", *["True"] * 7], done.output
    else:
        assert "REFUSED NotSupported kfd:0: sharing" in done.output, done.output
        assert "the kernel is built without HSA_AMD_SVM" in done.output


def test_queues_of_hsa_and_their_signals(story):
    """Kernels, scratch memory, signals in both memories that wake the process, points of all kinds of queues."""
    done = story.python(
        SQUARES
        + f"""
from ringup.queues.amd.aql import Condition
code = open({str(story.code)!r}, "rb").read()
with ringup.open("kfd:0") as card:
    program = card.load(code, "squares")
    queue, other = card.aql, card.new_aql_queue()
    source, target = card.alloc(40960), card.alloc(40960)
    data = np.random.default_rng(3).integers(0, 1 << 32, 10240, np.uint32)
    card.copy.upload(source, data).wait()
    def run(queue, count=10240):
        card.copy.fill(target, 0).wait()
        stream = queue.stream()
        stream.dispatch(program["square"], -(-count // 64), 64, [target, source, count])
        card.copy.wait_for(queue.submit(stream))
        return bool(np.array_equal(card.copy.download_array(target, np.uint32, count), (data * data)[:count]))
    say("SQUARES", run(queue), run(other, 77))
    for where in ("host", "vram"):
        first, second, gate = card.signal(1, where), card.signal(2, where), card.signal(1, where, name="gate")
        stream = queue.stream()
        stream.dispatch(program["square"], 160, 64, [target, source, 10240], completion=first)
        stream.barrier_and(first, completion=second)
        stream.barrier_value(gate, Condition.EQ, 5)
        point = queue.submit(stream)
        say("SIGNALS", where, second.wait(Condition.LT, 2) == 1, first.value == 0, first.duration_us > 0)
        used = time.process_time()
        try:
            point.wait(3)
        except RingupError as error:
            say("LATE", type(error).__name__, error.__notes__[-1])
        say("SLEPT", time.process_time() - used < 1.5)
        gate.value = 5
        point.wait()
    stream = queue.stream()
    stream.dispatch(program["stack"], 2, 64, [target, 300])
    card.copy.wait_for(queue.submit(stream))
    items, steps = np.arange(64, dtype=np.uint32)[:, None], np.arange(300, dtype=np.uint32)[None]
    wanted = (((steps * 37 + items) & 511) * 300 + items).sum(1, dtype=np.uint32)
    say("SCRATCH", card.copy.download_array(target, np.uint32, 128).tolist() == [*wanted, *wanted])
    point = None
    for value in range(1, 31):
        turn = (queue, card.compute, other)[value % 3]
        stream = turn.stream()
        if point is not None:
            stream.wait_for(point)
        if turn is card.compute:
            stream.append(stream.pm4.write_data(target.gpu_va, value))
        else:
            stream.store(target.gpu_va, value)
        point = turn.submit(stream)
    card.copy.wait_for(point)
    say("ORDERED", card.copy.download_array(target, np.uint32, 1)[0] == 30)
"""
    )
    assert done.status == 0, done.output
    lines = done.output.splitlines()
    assert lines.count("SLEPT True") == 2, done.output
    assert sum(line.startswith("LATE DeviceTimeout aql.") and "waits for <signal gate>" in line for line in lines) == 2
    for words in (
        "SQUARES True True",
        "SIGNALS host True True True",
        "SIGNALS vram True True True",
        "SCRATCH True",
        "ORDERED True",
    ):
        assert any(line.startswith(words) for line in lines), (words, done.output)


def test_the_drivers_tests_for_a_real_card_pass(story):
    assert metal(story, "kfd:0") >= 48


def test_run_bench_report_and_stats_on_the_command_line(story):
    done = story.ringup(f"run kfd:0 {story.code} square --arg show:256:u32 --arg zero:256 --arg u32:64")
    assert done.status == 0, done.output
    assert "square ran on kfd:0 in" in done.output
    done = story.ringup("bench latency kfd --card kfd:0 --json --no-peer --quick")
    assert done.status == 0, done.output
    figures = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert figures
    assert all(figure["ours"] > 0 for figure in figures)
    done = story.ringup("report kfd:0 --up")
    assert done.output.startswith("kfd:0: no error\ninterface 1."), done.output
    seen = answer(story.ringup("stats kfd:0 --json"))["sensors"]
    assert seen["vram_total_bytes"] == int(story.guest.check(f"cat {DEVICE}/mem_info_vram_total"))
    assert 0 < seen["power_w"] < 1000
    assert 0 < seen["edge_c"] < 120


# Computes squares until a file tells it to stop, and writes how it went.
WORKER = """
code = open(sys.argv[1], "rb").read()
with ringup.open("kfd:0") as card:
    program = card.load(code, "squares")
    rounds = 0
    while not os.path.exists("/run/guest/stop"):
        assert squares(card, program, seed=rounds), rounds
        rounds += 1
        say("ROUND", rounds)
say("ENDED", rounds)
"""


def work(story, name):
    """Start a worker in the background, and return its log."""
    code = f"sys.argv[1:] = [{str(story.code)!r}]\n{SQUARES}\n{WORKER}"
    log = story.begin(name, code)
    story.guest.wait_for(f"grep -q -e ROUND -e Traceback {log}", RUN_S)
    return log


def test_two_processes_one_killed_one_faulting(story):
    """Both use the card at once. One is killed in the middle of its work, another faults: the first never notices."""
    story.guest.check("rm -f /run/guest/stop")
    healthy = work(story, "healthy")
    idle_bytes = story.used_bytes()
    killed = work(story, "killed")
    assert story.used_bytes() > idle_bytes
    story.guest.check("kill -9 $(cat /run/guest/killed.pid)")
    # its memory comes back
    story.guest.wait_for(f"[ $(cat {DEVICE}/mem_info_vram_used) -le {idle_bytes} ]", RUN_S)
    done = story.python(
        SQUARES
        + f"""
code = open({str(story.code)!r}, "rb").read()
card = ringup.open("kfd:0")
program = card.load(code, "squares")
source, out = card.alloc(4096, name="in"), card.alloc(1 << 21, name="out")
stream = card.compute.stream()
stream.dispatch(program["square"], 1, 64, [out, source, 64])
out.free()
try:
    card.compute.submit(stream).wait(20)
    # the kernel's report may come after the work
    time.sleep(1)
    card.compute.submit(card.compute.stream()).wait(1)
except RingupError as error:
    say("FAULT", type(error).__name__, error)
say("REPORT", card.report().cause.startswith("DeviceFault"))
for doing in (lambda: card.compute.submit(card.compute.stream()), card.reset):
    try:
        doing()
    except RingupError as error:
        say("REFUSED", type(error).__name__)
card.close()
try:
    ringup.open("kfd:0")
except RingupError as error:
    say("CLOSED", type(error).__name__, error)
"""
    )
    assert done.status == 0, done.output
    assert "FAULT DeviceFault kfd:0: page fault at 0x" in done.output
    assert "'out', which was freed" in done.output
    assert done.output.count("REFUSED DeviceFault") == 2
    assert "REPORT True" in done.output
    assert "CLOSED DeviceHung" in done.output
    assert "start a new process" in done.output
    assert any("fault" in event for event in story.served.violations())
    rounds = int(story.guest.check(f"grep -c ROUND {healthy}"))
    story.guest.wait_for(f"[ $(grep -c ROUND {healthy}) -gt {rounds + 1} ]", RUN_S)
    story.guest.check("touch /run/guest/stop")
    story.ended(healthy)
    assert "Traceback" not in story.guest.check(f"cat {killed}")


def test_a_kernel_that_never_ends_is_taken_off(story):
    done = story.python(
        SQUARES
        + f"""
code = open({str(story.code)!r}, "rb").read()
with ringup.open("kfd:0") as card:
    program = card.load(code, "squares")
    flag = card.alloc(4096, name="flag")
    card.copy.fill(flag, 0).wait()
    stream = card.compute.stream()
    stream.dispatch(program["spin"], 1, 32, [flag])
    point = card.compute.submit(stream)
    began = time.process_time()
    try:
        point.wait(3)
    except RingupError as error:
        say("LATE", type(error).__name__, error)
    say("SLEPT", time.process_time() - began < 1.5)
    say("RUNGS", *card.reset())
    try:
        point.wait(1)
    except RingupError as error:
        say("FAILED", type(error).__name__)
    say("WORKS", squares(card, program))
"""
    )
    assert done.status == 0, done.output
    for words in (
        "LATE DeviceTimeout waiting for",
        "SLEPT True",
        "RUNGS queue: verified",
        "FAILED DeviceHung",
        "WORKS True",
    ):
        assert words in done.output, done.output


def test_doorbells_and_queues_run_out_with_a_clear_error(story):
    done = story.python(
        """
card = ringup.open("kfd:0")
queues = []
try:
    for _ in range(40):
        queues.append(card.new_copy_queue())
except RingupError as error:
    say("OUT", type(error).__name__, len(queues), error)
queues.pop().close()
queues.append(card.new_copy_queue())
queues[-1].submit(queues[-1].stream()).wait()
say("ONE MORE")
card.close()
"""
    )
    assert done.status == 0, done.output
    assert "OUT OutOfMemory" in done.output, done.output
    assert "close a queue" in done.output
    assert "ONE MORE" in done.output


def test_another_process_s_memory_and_nodes_are_refused(story):
    """A child after a fork has the parent's objects, and the kernel refuses them; it may open the card itself."""
    done = story.python(
        SQUARES
        + f"""
code = open({str(story.code)!r}, "rb").read()
card = ringup.open("kfd:0")
child = os.fork()
if not child:
    try:
        card.alloc(4096)
    except RingupError as error:
        say("CHILD", type(error).__name__, error)
    with ringup.open("kfd:0") as own:
        say("OWN", squares(own, own.load(code, "squares")))
    os._exit(0)
os.waitpid(child, 0)
say("PARENT", squares(card, card.load(code, "squares")))
card.close()
"""
    )
    assert done.status == 0, done.output
    assert "CHILD TransportError" in done.output, done.output
    assert "after a fork" in done.output
    assert "OWN True" in done.output
    assert "PARENT True" in done.output


def test_memory_goes_to_another_process_and_bad_descriptors_are_refused(story):
    """A child inherits the descriptors of its parent's memory, opens the card itself and works on the same bytes."""
    done = story.python(
        """
card = ringup.open("kfd:0")
for where in ("vram", "host"):
    buffer = card.alloc(1 << 20, where, name="shared")
    card.copy.fill(buffer, 7).wait()
    node = card.export(buffer)
    child = os.fork()
    if not child:
        with ringup.open("kfd:0") as own:
            theirs = own.import_buffer(node, "theirs")
            said = theirs.size_bytes, theirs.where, own.copy.download(theirs, size_bytes=4) == bytes([7, 0, 0, 0])
            own.copy.fill(theirs, 9).wait()
            say("CHILD", *said)
        os._exit(0)
    os.waitpid(child, 0)
    say("PARENT", where, card.copy.download(buffer) == bytes([9, 0, 0, 0]) * (1 << 18))
    os.close(node)
for bad in (9999, os.open("/dev/null", os.O_RDWR), os.memfd_create("other"), card.device.calls.node):
    try:
        card.import_buffer(bad)
    except RingupError as error:
        say("BAD", type(error).__name__, error)
card.close()
"""
    )
    assert done.status == 0, done.output
    lines = done.output.splitlines()
    for where in ("vram", "host"):
        assert f"CHILD {1 << 20} {where} True" in lines, done.output
        assert f"PARENT {where} True" in lines, done.output
    bad = [line for line in lines if line.startswith("BAD")]
    assert len(bad) == 4, done.output
    assert all(line.startswith("BAD TransportError kfd:0: importing memory: AMDKFD_IOC_") for line in bad), bad
    assert "the file descriptor is closed" in bad[0]


def test_a_reset_of_the_card_is_reported_to_who_uses_it(story):
    # no call of ours made the kernel complain, such as of pointers that it cannot read
    assert "Failed to read SDMA queue counter" not in story.guest.dmesg()
    log = story.begin(
        "reset",
        """
card = ringup.open("kfd:0")
buffer = card.alloc(1 << 20)
try:
    while True:
        card.copy.upload(buffer, bytes(1 << 20)).wait(60)
        say("COPIED")
except RingupError as error:
    say("ENDED", type(error).__name__, error)
card.close()
try:
    ringup.open("kfd:0")
except RingupError as error:
    say("AGAIN", type(error).__name__, error)
""",
    )
    story.guest.wait_for(f"grep -q -e COPIED -e Traceback {log}", RUN_S)
    story.guest.check("cat /sys/kernel/debug/dri/0/amdgpu_gpu_recover", LOAD_S)
    said = story.ended(log, "AGAIN")
    assert "ENDED DeviceHung kfd:0: amdgpu reset the card, since it hung; its memory is lost" in said, said
    assert "AGAIN DeviceHung" in said
    assert answer(story.ringup("up kfd:0 --json"))["moved_bytes"] == 1 << 20


# QUIRK: it is the last test. For a packet that the firmware refuses, Linux 6.12 takes a reference to the process and
# never gives it back, so amdgpu cannot be unloaded any more. Source: kfd_device_queue_manager.c,
# kfd_dqm_suspend_bad_queue_mes
def test_a_packet_that_is_refused_stops_its_queue_until_a_reset(story):
    done = story.python(
        SQUARES
        + f"""
code = open({str(story.code)!r}, "rb").read()
with ringup.open("kfd:0") as card:
    program = card.load(code, "squares")
    queue, other, target = card.aql, card.new_aql_queue(), card.alloc(4096)
    def run(queue):
        card.copy.fill(target, 3).wait()
        stream = queue.stream()
        stream.dispatch(program["square"], 1, 64, [target, target, 64])
        card.copy.wait_for(queue.submit(stream))
        return card.copy.download_array(target, np.uint32, 64).tolist() == [9] * 64
    stream = other.stream()
    stream.append(bytes([0x7F]) + bytes(63))
    try:
        other.submit(stream).wait(20)
    except RingupError as error:
        say("STOPPED", type(error).__name__, error)
    try:
        card.compute.stream(), card.compute.submit(card.compute.stream())
    except RingupError as error:
        say("REFUSED", type(error).__name__)
    say("RUNGS", *card.reset())
    say("AGAIN", run(queue), run(other))
"""
    )
    assert done.status == 0, done.output
    lines = done.output.splitlines()
    for words in ("REFUSED DeviceHung", "RUNGS queue: verified", "AGAIN True True"):
        assert any(line.startswith(words) for line in lines), (words, done.output)
    (stopped,) = (line for line in lines if line.startswith("STOPPED"))
    assert re.search(r"DeviceHung kfd:0: aql\.\d has stopped at packet \d+ .*a packet of no known type", stopped)
    (mistake,) = story.served.violations()
    assert "type 127 is no packet for a GPU" in mistake
