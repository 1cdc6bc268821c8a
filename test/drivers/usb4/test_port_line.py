"""Requests of endpoint 0 wait in line: which may follow another at once, and which wait until it has ended."""

import itertools

import pytest

REQUEST = 0xE5


class Slow:
    """A host that ends transfers when somebody waits for them, and not before."""

    def __init__(self, device):
        self.begun = []
        device.submit, device.handle_events = self.submit, self.handle_events

    def submit(self, handle, endpoint, payload, *, setup=b"", timeout_ms, stream=0):
        transfer = type("Transfer", (), {"done": False, "status": "", "data": b"", "actual": 0})()
        transfer.value = int.from_bytes(setup[2:4], "little")
        self.begun.append(transfer)
        return transfer

    def handle_events(self, timeout_ms):
        for transfer in self.begun if timeout_ms else ():
            transfer.done, transfer.status = True, "completed"


@pytest.mark.parametrize("whole", [*itertools.product((True, False), repeat=3)])
def test_a_request_follows_at_once_only_where_both_allow_it(wire, whole):
    device, port = wire()
    host = Slow(device)
    pending = [port.start_control_out(REQUEST, value, 0, whole=one) for value, one in enumerate(whole)]
    free = 1 + len(list(itertools.takewhile(all, itertools.pairwise(whole))))
    assert [one.value for one in host.begun] == list(range(free))
    port.wait(*pending)
    assert [one.value for one in host.begun] == [0, 1, 2]
