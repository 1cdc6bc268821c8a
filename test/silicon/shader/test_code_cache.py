"""Translations on disk: another translator runs the same code without LLVM, and nothing but whole files of one's own is
believed.
"""

import logging
import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringup.silicon import card
from ringup.silicon.shader.amd.translator import handler_store, translations
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.threaded import Threader
from ringup.silicon.shader.amd.translator.translations import QUICK, THOROUGH, THREADED
from ringup.silicon.shader.host import code_cache
from ringup.silicon.shader.host.beside import Beside
from ringup.silicon.shader.host.code_cache import CodeCache, key_of

OUT = 0x30_0000
ARGS = {"user_sgprs": (OUT, 0), "vgpr_count": 24}
STORE = "v_lshlrev_b32_e32 v1, 2, v0\nv_add_nc_u32_e32 v2, {}, v0\nglobal_store_b32 v1, v2, s[0:1]\ns_endpgm\n"
PARTS = [b"tables", b"", b"code" * 1000]


@pytest.fixture
def kept(tmp_path):
    return CodeCache(tmp_path / "code")


def another_process():
    """Forget the handlers of this process."""
    handler_store.handlers.cache_clear()


@pytest.fixture
def compiled(monkeypatch):
    """List the forms whose handlers are compiled; there are none at first."""
    another_process()
    made = []
    module = handler_store.module
    monkeypatch.setattr(handler_store, "module", lambda forms: made.append(forms) or module(forms))
    yield made
    another_process()


@pytest.fixture
def lowered(monkeypatch, compiled):
    """Count the programs that are analysed to be threaded or compiled."""
    made = []
    lower = translations.lower

    class Counted(Threader):
        def __init__(self, program, variant):
            made.append(variant)
            super().__init__(program, variant)

    monkeypatch.setattr(translations, "Threader", Counted)
    monkeypatch.setattr(translations, "lower", lambda *words, **more: made.append(words[1]) or lower(*words, **more))
    return made


def entries(kept):
    return sorted(one for one in kept.folder.glob("*/*"))


# Handlers are an entry of their own.
@pytest.mark.parametrize(("level", "files"), [(THREADED, 2), (QUICK, 1)])
def test_another_process_runs_kept_code_without_llvm(machine, kept, lowered, compiled, level, files):
    out = machine.buffer(OUT, np.zeros(32))
    program = STORE.format(5)
    first = machine.run(program, engine=Translator(on_disk=kept, level=level), **ARGS)
    assert (out == np.arange(32) + 5).all()
    assert (len(lowered), len(compiled), len(entries(kept))) == (1, files - 1, files)
    out[:] = 0
    another_process()
    # the same code at another place in memory
    second = machine.run(program, engine=Translator(on_disk=CodeCache(kept.folder), level=level), **ARGS)
    assert (out == np.arange(32) + 5).all()
    assert (len(lowered), len(compiled)) == (1, files - 1)
    assert list(second.counters.by_pc.values()) == list(first.counters.by_pc.values())
    assert replace(second.counters, by_pc={}) == replace(first.counters, by_pc={})


def test_kept_code_breaks_the_same_rules(machine, kept, lowered):
    found = [
        machine.broken(
            "v_cmp_eq_u32_e32 vcc_lo, v9, v9\ns_cbranch_vccz -2\ns_endpgm\n", engine=Translator(on_disk=kept), **ARGS
        )
        for _ in range(2)
    ]
    assert [str(one).split(" at ")[0] for one in found] == [str(found[0]).split(" at ")[0]] * 2
    assert "v9" in str(found[0])
    assert len(lowered) == len(entries(kept))


@pytest.mark.parametrize(
    "other", [{"level": THOROUGH}, {"host_cpu": "x86-64"}, {"counting": True}], ids=lambda one: next(iter(one))
)
def test_what_a_translation_depends_on_is_part_of_its_name(machine, kept, lowered, other):
    machine.buffer(OUT, np.zeros(32))
    machine.run(STORE.format(5), engine=Translator(on_disk=kept), **ARGS)
    machine.run(STORE.format(5), engine=Translator(on_disk=kept, **other), **ARGS)
    assert len(lowered) == 2


def test_programs_of_the_same_forms_share_handlers_on_disk_too(machine, kept, compiled):
    out = machine.buffer(OUT, np.zeros(32))
    for added in (5, 6, 7):
        machine.run(STORE.format(added), engine=Translator(on_disk=kept), **ARGS)
        assert (out == np.arange(32) + added).all()
        another_process()
    # The first process compiled them. The others read them with that program only.
    assert len(entries(kept)) == 3 + 1
    machine.run(STORE.format(7), engine=Translator(on_disk=kept), **ARGS)
    assert len({form.name for forms in compiled for form in forms}) == len(compiled[0])


def test_a_program_whose_handlers_are_gone_is_translated_again(machine, kept, lowered, compiled):
    out = machine.buffer(OUT, np.zeros(32))
    machine.run(STORE.format(5), engine=Translator(on_disk=kept), **ARGS)
    for one in entries(kept):
        if b'"kept"' not in one.read_bytes():
            one.unlink()
    another_process()
    out[:] = 0
    machine.run(STORE.format(5), engine=Translator(on_disk=kept), **ARGS)
    assert (out == np.arange(32) + 5).all()
    assert (len(lowered), len(compiled), len(entries(kept))) == (2, 2, 2)


def test_the_next_process_begins_with_better_handlers(machine, kept, lowered, compiled, monkeypatch):
    monkeypatch.setattr(translations, "WARM", 1)
    out = machine.buffer(OUT, np.zeros(32))
    machine.run(STORE.format(5), engine=Translator(on_disk=kept), **ARGS)
    assert len(compiled) == 2
    another_process()
    out[:] = 0
    engine = Translator(on_disk=kept)
    machine.run(STORE.format(5), engine=engine, **ARGS)
    assert (out == np.arange(32) + 5).all()
    assert len(compiled) == 2
    ((job,),) = engine.cache.values()
    assert job.made.result().improve is None


def test_other_code_is_another_entry(machine, kept, lowered):
    out = machine.buffer(OUT, np.zeros(32))
    for added in (5, 6, 5):
        machine.run(STORE.format(added), engine=Translator(on_disk=kept), **ARGS)
        assert (out == np.arange(32) + added).all()
    assert len(lowered) == 2


def test_a_background_thread_reads_and_writes_entries_too(machine, kept, lowered):
    out = machine.buffer(OUT, np.zeros(32))
    for _ in range(2):
        with Beside() as beside:
            run = machine.start(STORE.format(7), engine=Translator(on_disk=kept, beside=beside), **ARGS)
            while not run.step(1000):
                assert not run.violations
        assert (out == np.arange(32) + 7).all()
        out[:] = 0
    assert len(lowered) == 1


def test_parts_come_back_as_they_were(kept):
    key = key_of([b"a"])
    assert kept.read(key) is None
    kept.write(key, PARTS)
    assert CodeCache(kept.folder).read(key) == PARTS
    assert kept.read(key_of([b"b"])) is None


def test_the_name_depends_on_every_byte_and_where_parts_end(monkeypatch):
    names = {key_of(parts) for parts in ([], [b""], [b"ab"], [b"a", b"b"], [b"ab", b""])}
    assert len(names) == 5
    before = key_of([])
    monkeypatch.setattr(code_cache, "translator_digest", lambda: b"another version")
    assert key_of([]) != before


def test_damaged_files_count_as_missing(kept):
    key = key_of([b"a"])
    kept.write(key, PARTS)
    (path,) = entries(kept)
    whole = path.read_bytes()
    for damaged in (b"", whole[:10], whole[:-1], whole + b"x", whole[:60] + b"!" + whole[61:], whole[:20] + b"!" * 40):
        path.write_bytes(damaged)
        assert kept.read(key) is None
    kept.write(key, PARTS)
    assert kept.read(key) == PARTS


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files here")
def test_files_that_others_could_have_written_are_not_run(kept, monkeypatch):
    key = key_of([b"a"])
    kept.write(key, PARTS)
    (path,) = entries(kept)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert kept.read(key) is None
    path.chmod(0o644)
    assert kept.read(key) == PARTS
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    assert kept.read(key) is None


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path, caplog, machine):
    (tmp_path / "file").write_text("not a folder")
    kept = CodeCache(tmp_path / "file" / "code")
    out = machine.buffer(OUT, np.zeros(32))
    with caplog.at_level(logging.WARNING):
        for added in (5, 6):
            machine.run(STORE.format(added), engine=Translator(on_disk=kept), **ARGS)
            assert (out == np.arange(32) + added).all()
    assert [one.message for one in caplog.records if "not kept" in one.message] == [caplog.records[0].message]


def test_what_was_read_least_recently_goes_when_the_folder_is_full(kept, monkeypatch):
    monkeypatch.setattr(code_cache, "LOOK_EVERY", 1)
    kept.max_bytes = 20_000
    keys = [key_of([bytes([i])]) for i in range(6)]
    for age, key in enumerate(keys[:4]):
        kept.write(key, PARTS)
        os.utime(kept.folder / key[:2] / key, (age, age))
    # reading makes an entry young
    assert kept.read(keys[0]) == PARTS
    kept.write(keys[4], PARTS)
    assert [kept.read(one) is not None for one in keys[:5]] == [True, False, False, True, True]


@pytest.mark.parametrize("look", [1, 2])
def test_an_entry_that_another_process_deletes_meanwhile_stops_nothing(kept, monkeypatch, look):
    monkeypatch.setattr(code_cache, "LOOK_EVERY", 1)
    gone, looks, stat_of = kept.folder / "00" / "gone", [], Path.stat
    gone.parent.mkdir(parents=True)
    gone.write_bytes(b"")

    def stat_once(path, **how):
        if path == gone:
            looks.append(path)
            if len(looks) >= look:
                raise FileNotFoundError(path)
        return stat_of(path, **how)

    monkeypatch.setattr(Path, "stat", stat_once)
    for name in (b"a", b"b"):
        kept.write(key_of([name]), PARTS)
        assert kept.read(key_of([name])) == PARTS
    assert looks


def test_a_card_keeps_its_code_where_it_is_told(tmp_path):
    folder = tmp_path / "code"
    made = card("navi31", code_folder=folder)
    assert made.gc.dispatcher.engine.on_disk == CodeCache(folder)
    assert card("navi31").gc.dispatcher.engine.on_disk is None
