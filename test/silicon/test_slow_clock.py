"""A guest's clock goes slower while its cards are behind. The emulator is a monitor that notes what it is told."""

import json
import logging
import socket
import threading
import time

import pytest

from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.serve.slow_clock import COMPUTING_S, PATIENCE_S, RUNNING_S, Lag, SlowClock
from ringup.silicon.serve.vfio_user import VfioUserServer
from ringup.silicon.shader.host.beside import Beside

# TIMEOUT: for a thread to do what it must
SOON_S = 20.0
EVEN, TRANSLATING, BEHIND = Lag(False, 0.0), Lag(True, 0.0), Lag(False, 0.5)


class Emulator:
    """Answers as QEMU's monitor does (docs/interop/qmp-spec.rst). `told`: when it stopped and went on."""

    def __init__(self, path, status="running"):
        self.path, self.status, self.told = str(path), status, []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            peer, _ = self._listener.accept()
            with peer, peer.makefile("rw") as lines:
                print(json.dumps({"QMP": {"version": {}, "capabilities": []}}), file=lines, flush=True)
                for line in lines:
                    name = json.loads(line)["execute"]
                    if name == "quit":
                        return
                    if name in ("stop", "cont"):
                        self.status = {"stop": "paused", "cont": "running"}[name]
                        self.told.append((name, time.monotonic()))
                        print(json.dumps({"event": name.upper()}), file=lines)
                    answer = {"status": self.status} if name == "query-status" else {}
                    print(json.dumps({"return": answer}), file=lines, flush=True)

    def close(self):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(self.path)
            sock.sendall(b'{"execute": "quit"}\n')
            self._thread.join()
        self._listener.close()


@pytest.fixture
def emulator(tmp_path):
    made = Emulator(tmp_path / "monitor")
    yield made
    made.close()


def until(condition):
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("lag", [TRANSLATING, BEHIND], ids=["translating", "behind"])
def test_a_guest_is_stopped_until_its_cards_have_caught_up(emulator, lag):
    lags = [lag]
    clock = SlowClock(emulator.path, lambda: lags[0])
    until(lambda: emulator.told)
    lags[0] = EVEN
    until(lambda: emulator.status == "running")
    time.sleep(2 * PATIENCE_S)
    clock.close()
    assert [name for name, _ in emulator.told] == ["stop", "cont"]
    stopped_s = emulator.told[1][1] - emulator.told[0][1]
    assert clock.stopped_s == pytest.approx(stopped_s, abs=0.2)


def test_a_guest_runs_between_spells_of_a_card_that_never_catches_up(emulator):
    clock = SlowClock(emulator.path, lambda: BEHIND)
    until(lambda: len(emulator.told) > 4)
    clock.close()
    names, times = zip(*emulator.told, strict=True)
    assert names == ("stop", "cont") * (len(names) // 2)
    assert all(times[at] - times[at - 1] >= COMPUTING_S for at in range(1, 4, 2))
    assert all(times[at] - times[at - 1] >= RUNNING_S for at in range(2, 5, 2))
    assert emulator.status == "running"


def test_spells_are_as_long_as_programs_that_end_may_take(emulator):
    clock = SlowClock(emulator.path, lambda: BEHIND)
    clock.computing_s = 2 * COMPUTING_S
    until(lambda: len(emulator.told) > 1)
    clock.close()
    (_, stopped_s), (_, went_on_s), *_ = emulator.told
    assert went_on_s - stopped_s >= 2 * COMPUTING_S


def test_cards_that_keep_up_and_short_translations_stop_no_guest(emulator):
    began_s = time.monotonic()
    # every other look finds a translation
    clock = SlowClock(emulator.path, lambda: TRANSLATING if int((time.monotonic() - began_s) * 8) % 2 else EVEN)
    time.sleep(4 * PATIENCE_S)
    clock.close()
    assert emulator.told == []


def test_a_guest_that_its_user_has_stopped_stays_so(emulator):
    emulator.status = "paused"
    clock = SlowClock(emulator.path, lambda: BEHIND)
    time.sleep(4 * RUNNING_S)
    clock.close()
    assert (emulator.told, emulator.status, clock.stopped_s) == ([], "paused", 0.0)


def test_an_emulator_that_is_not_there_is_named_once(tmp_path, caplog):
    path = str(tmp_path / "none")
    with caplog.at_level(logging.WARNING):
        clock = SlowClock(path, lambda: BEHIND)
        time.sleep(4 * RUNNING_S)
        clock.close()
    (said,) = caplog.messages
    assert said.startswith(f"{path}: the guest's clock cannot be slowed")


def test_a_server_stops_the_guest_while_a_program_waits_for_its_translation(emulator):
    go = threading.Event()
    with Beside() as beside, VfioUserServer(VirtualClock(), beside) as server:
        server.slow(emulator.path)
        thread = threading.Thread(target=server.run)
        thread.start()
        # code that is there already gets better
        beside.improve(time.sleep, 2 * PATIENCE_S).result()
        assert emulator.told == []
        beside.submit(go.wait, SOON_S)
        until(lambda: emulator.told)
        # the server ends in a spell
        server.stop()
        thread.join()
        server.close()
        assert emulator.status == "running"
        go.set()


def test_cards_time_is_the_guests_while_a_step_of_theirs_takes_long(emulator):
    clock = VirtualClock()
    with VfioUserServer(clock) as server:
        server.slow(emulator.path)
        clock.after(10_000, lambda: until(lambda: len(emulator.told) >= 4))
        began_s = time.monotonic()
        while len(emulator.told) < 4:
            server.step(0.01)
        server.step(0)
        passed_s = time.monotonic() - began_s
        assert server.stopped_s > 2 * COMPUTING_S
        assert clock.now_ns / 1e9 == pytest.approx(passed_s - server.stopped_s, abs=0.3)
