"""Teardown: every step is tried, and tests define which error is raised."""

import logging

import pytest

from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.errors import DeviceHung, DeviceLost, RingupError


class Steps:
    """Steps that record that they were tried; some raise."""

    def __init__(self):
        self.tried = []

    def step(self, name, error=None):
        def take():
            self.tried.append(name)
            if error is not None:
                raise error

        return take


@pytest.fixture
def steps():
    return Steps()


def test_the_first_error_comes_out_when_every_step_was_tried(steps):
    first, second = DeviceHung("queues are stuck"), DeviceLost("the link is down")
    with pytest.raises(DeviceHung) as caught, Teardown("stopping a card") as teardown:
        done = [
            teardown.attempt(steps.step(name, error))
            for name, error in (("queues", first), ("engines", None), ("bus", second), ("memory", None))
        ]
    assert steps.tried == ["queues", "engines", "bus", "memory"]
    assert done == [False, True, False, True]
    assert caught.value is first


def test_later_errors_are_logged(steps, caplog):
    caplog.set_level(logging.INFO, logger="ringup.drivers.cleanup")
    with pytest.raises(DeviceHung), Teardown("stopping a card") as teardown:  # noqa: PT012
        teardown.attempt(steps.step("queues", DeviceHung("stuck")))
        teardown.attempt(steps.step("bus", DeviceLost("the link is down")))
    assert caplog.messages == ["stopping a card: the link is down"]


def test_an_interruption_waits_for_the_other_steps_and_comes_out_before_later_errors(steps):
    with pytest.raises(KeyboardInterrupt), Teardown("closing a card") as teardown:  # noqa: PT012
        teardown.attempt(steps.step("transfers", KeyboardInterrupt()))
        teardown.attempt(steps.step("device", DeviceHung("stuck")))
    assert steps.tried == ["transfers", "device"]


def test_errors_that_are_only_logged_hide_no_other_error(steps, caplog):
    caplog.set_level(logging.INFO, logger="ringup.drivers.cleanup")
    with Teardown("closing a card", logged=(RingupError, OSError)) as teardown:
        assert not teardown.attempt(steps.step("mastering", DeviceLost("gone")))
        assert not teardown.attempt(steps.step("files", OSError("busy")))
        assert teardown.first is None
    assert caplog.messages == ["closing a card: gone", "closing a card: busy"]
    with pytest.raises(ZeroDivisionError), Teardown("closing a card", logged=RingupError) as teardown:  # noqa: PT012
        teardown.attempt(steps.step("mastering", DeviceLost("gone")))
        teardown.attempt(steps.step("bug", ZeroDivisionError()))


def test_an_error_of_no_kind_that_is_kept_comes_out_of_its_step(steps):
    with pytest.raises(KeyboardInterrupt), Teardown("stopping a card", kept=RingupError) as teardown:  # noqa: PT012
        teardown.attempt(steps.step("queues", DeviceHung("stuck")))
        teardown.attempt(steps.step("engines", KeyboardInterrupt()))
        teardown.attempt(steps.step("bus"))
    assert steps.tried == ["queues", "engines"]


def test_a_kept_error_that_another_hides_is_logged(steps, caplog):
    caplog.set_level(logging.INFO, logger="ringup.drivers.cleanup")
    with pytest.raises(KeyboardInterrupt), Teardown("stopping a card", kept=RingupError) as teardown:  # noqa: PT012
        teardown.attempt(steps.step("queues", DeviceHung("stuck")))
        teardown.attempt(steps.step("bus", DeviceLost("the link is down")))
        teardown.attempt(steps.step("engines", KeyboardInterrupt()))
    assert caplog.messages == ["stopping a card: the link is down", "stopping a card: stuck"]


def test_a_kept_error_that_the_body_raises_is_not_logged(steps, caplog):
    caplog.set_level(logging.INFO, logger="ringup.drivers.cleanup")
    with pytest.raises(DeviceHung, match="stuck"), Teardown("stopping a card") as teardown:  # noqa: PT012
        teardown.attempt(steps.step("queues", DeviceHung("stuck")))
        raise teardown.first
    assert caplog.messages == []


def test_the_cleanup_of_a_failed_start_does_not_hide_its_error(steps):
    undo = steps.step("undo", DeviceLost("gone too"))
    with pytest.raises(DeviceHung, match="stuck"), undone_on_error(undo):
        raise DeviceHung("stuck")
    with undone_on_error(undo):
        pass
    assert steps.tried == ["undo"]
