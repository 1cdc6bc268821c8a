"""What the kernel tells of faults and resets, as errors.

After a fault, amdkfd takes all queues of the process off the card and lets none on again until the process ends.
Source: Linux amdkfd kfd_int_process_v11.c, kfd_debug.c (kfd_set_dbg_ev_from_interrupt), kfd_device_queue_manager.c
(kfd_dqm_evict_pasid), kfd_events.c (kfd_signal_reset_event).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.amd import kfd
from ringup.drivers.transport.kfd.calls import HwException, MemoryFault
from ringup.drivers.transport.kfd.device import Happened
from ringup.errors import DeviceFault, DeviceHung, RingupError

STOPPED = "amdgpu runs no queue of this process any more: start the work again in a new process"
MEMORY_ERRORS = {
    kfd.KFD_MEM_ERR_SRAM_ECC: "memory inside the card was damaged (ECC)",
    kfd.KFD_MEM_ERR_POISON_CONSUMED: "damaged memory was read (poison)",
    kfd.KFD_MEM_ERR_GPU_HANG: "the card hung",
}
CAUSES = {kfd.KFD_HW_EXCEPTION_GPU_HANG: "it hung", kfd.KFD_HW_EXCEPTION_ECC: "its memory was damaged (ECC)"}
RESETS = {
    kfd.KFD_HW_EXCEPTION_WHOLE_GPU_RESET: "the card",
    kfd.KFD_HW_EXCEPTION_PER_ENGINE_RESET: "an engine of the card",
}


def error_of(name: str, one: Happened, describe: Callable[[int], str]) -> RingupError:
    """Return the error for a fault or a reset. `describe` says what lies in the page at an address."""
    if isinstance(one, MemoryFault):
        return _fault(name, one, describe)
    assert isinstance(one, HwException)  # there is no third kind
    what, cause = RESETS.get(one.reset_type, "the card"), CAUSES.get(one.reset_cause, f"cause {one.reset_cause}")
    lost = "; its memory is lost" if one.memory_lost else ""
    return DeviceHung(f"{name}: amdgpu reset {what}, since {cause}{lost}; {STOPPED}")


def _fault(name: str, one: MemoryFault, describe: Callable[[int], str]) -> RingupError:
    if one.error_type:
        kind = MEMORY_ERRORS.get(one.error_type, f"memory error {one.error_type}")
        return DeviceHung(f"{name}: {kind}; {STOPPED}")
    # QUIRK: the kernel's names are those of another interrupt's bits: NotPresent is "no valid page", ReadOnly "a write
    # that is not allowed". Source: kfd_int_process_v11.c, prot_valid and prot_write
    why = [
        text
        for seen, text in (
            (one.not_present, "no page is mapped there"),
            (one.read_only, "a write"),
            (one.no_execute, "code that may not run"),
        )
        if seen
    ]
    reason = f" ({', '.join(why)})" if why else ""
    return DeviceFault(f"{name}: page fault at {one.gpu_va:#x}{reason}: {describe(one.gpu_va)}; {STOPPED}")
