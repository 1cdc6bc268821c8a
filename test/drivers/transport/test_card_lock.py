"""The lock of a card, between real processes."""

import subprocess
import sys

import pytest

from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.lock import CardLock
from ringup.errors import CardBusy, TransportError

HOLD = """
import sys, time
from pathlib import Path
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.lock import CardLock
lock = CardLock(Kernel(Path(sys.argv[1])), "0000:03:00.0")
lock.take(HostClock())
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def root(tmp_path):
    """Our own files for locks, the real kernel's for processes."""
    (tmp_path / "run/lock").mkdir(parents=True)
    (tmp_path / "proc").symlink_to("/proc")
    return tmp_path


@pytest.fixture
def holder(root):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def lock_of(root):
    return CardLock(Kernel(root), "0000:03:00.0")


def test_the_holder_is_named_with_its_command(root, holder):
    lock = lock_of(root)
    with pytest.raises(
        CardBusy, match=rf"held by process {holder.pid} \(.*python.* -c import sys, time from .*\); end it or wait"
    ):
        lock.take(HostClock())
    assert lock.holder().pid == holder.pid


def test_waiting_is_bounded(root, holder):
    clock = HostClock()
    started = clock.now_us
    with pytest.raises(CardBusy, match=r"held for 0\.1 s by process"):
        lock_of(root).take(clock, 0.1)
    assert 100_000 <= clock.now_us - started < 5_000_000


def test_a_released_card_goes_to_the_waiting_process(root, holder):
    holder.stdin.write("\n")
    holder.stdin.flush()
    lock = lock_of(root)
    lock.take(HostClock(), 10)
    assert lock.previous is None
    lock.release()
    assert lock.holder() is None


def test_kill_9_frees_the_card_and_the_next_process_learns_its_state(root, holder):
    holder.kill()
    holder.wait()
    lock = lock_of(root)
    assert lock.holder() is None
    lock.take(HostClock())
    assert lock.previous.pid == holder.pid
    lock.release()
    lock.take(HostClock())
    assert lock.previous is None
    lock.release()


def test_a_later_process_with_the_same_id_is_no_holder(root, holder):
    lock = lock_of(root)
    record = lock.path.read_text()
    lock.path.write_text(record.replace('"start_time": ', '"start_time": 9'))
    assert lock.holder() is None


@pytest.mark.parametrize("record", ["", "{", "[" * 100_000, '{"pid": "x"}', '{"pid": 1}', "7", "\udc80"])
def test_a_malformed_record_is_ignored(root, record):
    lock = lock_of(root)
    lock.path.write_bytes(record.encode(errors="surrogateescape"))
    lock.take(HostClock())
    assert lock.previous is None
    assert lock.holder().pid
    lock.release()


def test_a_link_in_the_locks_place_is_not_followed(root, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock = lock_of(root)
    lock.path.symlink_to(victim)
    with pytest.raises(TransportError, match="taking the card's lock /run/lock/ringup-0000:03:00"):
        lock.take(HostClock())
    assert victim.read_text() == "precious"


def test_every_user_may_take_it(root):
    lock = lock_of(root)
    lock.take(HostClock())
    lock.release()
    assert lock.path.stat().st_mode & 0o777 == 0o666
