"""A kernel made of files with one card in its compute topology."""

import pytest
from kernels.compute_machine import Compute

from ringup.drivers.transport.kfd.process import Process


@pytest.fixture
def compute(tmp_path):
    machine = Compute(tmp_path)
    machine.node(1)
    machine.card()
    machine.process = Process(machine.kernel)
    yield machine
    machine.process.close()
