"""The memories of a card: sparse VRAM, and host memory by bus address."""

from __future__ import annotations

import ctypes
import gc
import os

import pytest

from ringup.silicon.common.memory import PAGE, HostMemory, Vram, span_of


def test_vram_of_a_real_card_costs_nothing_until_it_is_written():
    vram = Vram(24 << 30)
    assert vram.read((24 << 30) - 4, 4) == bytes(4)
    vram.write(23 << 30, b"far away")
    assert vram.read(23 << 30, 8) == b"far away"
    assert ctypes.string_at(vram.span.pointer + (23 << 30), 8) == b"far away"


def test_vram_without_power_forgets():
    vram = Vram(1 << 20)
    vram.write(0, b"x")
    vram.lose()
    assert vram.read(0, 1) == b"\0"


@pytest.mark.parametrize(("vram_pa", "size_bytes"), [(-1, 1), (PAGE, 1), (PAGE - 1, 2)])
def test_vram_has_an_end(vram_pa, size_bytes):
    with pytest.raises(IndexError):
        Vram(PAGE).read(vram_pa, size_bytes)


def test_the_card_sees_host_memory_at_its_bus_address():
    host = HostMemory()
    buffer = host.allocate(3 * PAGE)
    host.write(buffer.bus_addr(PAGE - 2), b"over")
    assert bytes(buffer.view[PAGE - 2 : PAGE + 2]) == b"over"
    buffer.view[5] = 9
    assert host.read(buffer.bus_addr(5), 1) == b"\x09"


def test_an_address_nobody_mapped_is_a_master_abort():
    host, seen = HostMemory(), []
    host.on_error = lambda bus_addr, write: seen.append((bus_addr, write))
    buffer = host.allocate(PAGE)
    buffer.view[PAGE - 1] = 7
    end = buffer.bus_addr(PAGE - 1) + 1
    assert host.read(end - 1, 3) == b"\x07\xff\xff"
    host.write(end, b"lost")
    assert seen == [(end, False), (end, True)]
    assert host.errors == 2


def test_freed_memory_is_out_of_the_cards_reach_and_freeing_twice_is_harmless():
    host = HostMemory()
    buffer = host.allocate(PAGE)
    epoch = host.epoch
    buffer.free()
    buffer.free()
    assert host.read(buffer.span.base, 2) == b"\xff\xff"
    assert host.epoch == epoch + 1


def test_buffers_do_not_touch_so_running_over_an_end_is_seen():
    host = HostMemory()
    first, second = host.allocate(PAGE), host.allocate(PAGE)
    assert second.bus_addr() - (first.bus_addr() + PAGE) >= HostMemory.GUARD_BYTES - PAGE


def test_memory_of_somebody_else_is_reached_where_it_was_put_and_never_overlaps():
    host = HostMemory()
    theirs = bytearray(2 * PAGE)
    host.attach(span_of(theirs, base=0x1000))
    host.write(0x1000 + PAGE, b"dma")
    assert theirs[PAGE : PAGE + 3] == b"dma"
    with pytest.raises(ValueError, match="already mapped"):
        host.attach(span_of(bytearray(PAGE), base=0x2000))


def test_read_only_memory_refuses_the_cards_writes():
    host = HostMemory()
    theirs = bytearray(PAGE)
    host.attach(span_of(theirs, base=0x1000, writable=False))
    host.write(0x1000, b"x")
    assert theirs[0] == 0
    assert host.errors == 1


def test_a_watch_hears_of_writes_to_its_addresses_after_they_arrived():
    host = HostMemory()
    span = span_of(bytearray(PAGE), 0x82_2000)
    host.attach(span)
    heard = []
    host.watch(0x82_200C, 0x82_2010, lambda bus_addr, size: heard.append((bus_addr, size, span.view[0xC])))
    host.write(0x82_2000, bytes(12))
    host.write(0x82_2010, bytes(4))
    host.read(0x82_200C, 4)
    assert heard == []
    host.write(0x82_200C, b"\x11" * 4)
    host.write(0x82_2008, b"\x22" * 16)
    assert heard == [(0x82_200C, 4, 0x11), (0x82_2008, 16, 0x22)]


def test_memory_that_is_no_process_stays_when_its_user_ends():
    host = HostMemory()
    lasting = span_of(bytearray(PAGE), 0x20_0000)
    lasting.lasting = True
    host.attach(lasting)
    buffer = host.allocate(PAGE)
    host.detach_all()
    assert host.find(0x20_0000) is lasting
    assert host.find(buffer.bus_addr()) is None


def test_a_cards_memory_leaves_no_descriptor_behind():
    vram = Vram(1 << 20)
    descriptor = vram.fileno
    os.fstat(descriptor)
    del vram
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
