"""The firmware store on folders as a distribution, a kernel parameter or a user lays them out, and on hostile files."""

import errno
import hashlib
import lzma
import os

import pytest
import zstandard

from ringup.errors import FirmwareError
from ringup.firmware import store
from ringup.firmware.store import Store, load_file, system_folders

NAME = "amdgpu/gc_11_0_0_mec.bin"
DATA = bytes(range(256)) * 40


def put(path, data=DATA):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def compressed(suffix, data=DATA):
    return {"": lambda raw: raw, ".xz": lzma.compress, ".zst": zstandard.compress}[suffix](data)


@pytest.mark.parametrize("suffix", ["", ".xz", ".zst"])
def test_a_file_is_found_as_it_is_and_compressed(tmp_path, suffix):
    path = put(tmp_path / (NAME + suffix), compressed(suffix))
    found = Store([tmp_path]).load(NAME)
    assert (found.name, found.path, found.data) == (NAME, path, DATA)
    assert found.sha256 == hashlib.sha256(DATA).hexdigest()
    assert load_file(path).data == DATA


def test_a_file_as_it_is_comes_before_a_compressed_one(tmp_path):
    for suffix in (".xz", ".zst", ""):
        put(tmp_path / (NAME + suffix), compressed(suffix, suffix.encode() * 9 + b"x"))
    assert Store([tmp_path]).load(NAME).path.name == "gc_11_0_0_mec.bin"
    (tmp_path / NAME).unlink()
    assert Store([tmp_path]).load(NAME).path.suffix == ".zst"  # the kernel's order


@pytest.mark.parametrize("suffix", [".xz", ".zst"])
def test_the_target_of_a_link_is_unpacked_by_its_contents(tmp_path, suffix):
    put(tmp_path / f"amdgpu/real.bin{suffix}", compressed(suffix))
    (tmp_path / NAME).symlink_to(f"real.bin{suffix}")
    assert Store([tmp_path]).load(NAME).data == DATA
    assert Store([], [tmp_path / NAME]).load(NAME).data == DATA
    assert load_file(tmp_path / NAME).data == DATA
    wrong = put(tmp_path / f"wrong{'.zst' if suffix == '.xz' else '.xz'}", compressed(suffix))
    assert load_file(wrong).data == DATA


def test_a_packed_file_that_is_cut_is_refused_behind_a_link_too(tmp_path):
    put(tmp_path / "amdgpu/real.bin.xz", compressed(".xz")[:-5])
    (tmp_path / NAME).symlink_to("real.bin.xz")
    with pytest.raises(FirmwareError, match=r"gc_11_0_0_mec\.bin is cut short"):
        Store([tmp_path]).load(NAME)


def test_a_dangling_link_is_named_with_the_files_beside_it(tmp_path):
    (tmp_path / "amdgpu").mkdir()
    (tmp_path / NAME).symlink_to("real.bin")
    with pytest.raises(FirmwareError, match=r"gc_11_0_0_mec\.bin is a link to real\.bin, which is not there; install"):
        Store([tmp_path]).load(NAME)
    put(tmp_path / "amdgpu/real.bin.xz", compressed(".xz"))
    with pytest.raises(
        FirmwareError, match=r"is a link to real\.bin, which is not there \(real\.bin\.xz exists: point the link"
    ):
        Store([tmp_path]).load(NAME)
    with pytest.raises(
        FirmwareError, match=r"where firmware should be, is not there; it is a link to real\.bin, which"
    ):
        Store([], [tmp_path / NAME])
    put(tmp_path / f"{NAME}.xz", compressed(".xz"))
    assert Store([tmp_path]).load(NAME).data == DATA


def test_the_first_folder_that_has_it_wins(tmp_path):
    put(tmp_path / "b" / NAME, b"second")
    both = Store([tmp_path / "a", tmp_path / "b", tmp_path / "missing"])
    assert both.load(NAME).data == b"second"
    put(tmp_path / "a" / NAME, b"first")
    assert both.load(NAME).data == b"first"


@pytest.mark.parametrize("place", ["amdgpu/gc_11_0_0_mec.bin", "gc_11_0_0_mec.bin.xz"])
def test_a_named_folder_may_hold_the_tree_or_bare_files(tmp_path, place):
    put(tmp_path / "own" / place, compressed(".xz" if place.endswith("xz") else ""))
    put(tmp_path / "system" / NAME, b"system")
    assert Store([tmp_path / "system"], [tmp_path / "own"]).load(NAME).data == DATA


def test_a_named_file_serves_its_own_name_only(tmp_path):
    own = put(tmp_path / "my" / "gc_11_0_0_mec.bin.zst", compressed(".zst"))
    found = Store([], [own])
    assert found.load(NAME).data == DATA
    assert found.find("amdgpu/gc_11_0_0_me.bin") is None


def test_links_are_followed_and_dangling_ones_count_as_missing(tmp_path):
    put(tmp_path / "amdgpu" / "real.bin")
    (tmp_path / NAME).symlink_to("real.bin")
    assert Store([tmp_path]).load(NAME).data == DATA
    (tmp_path / "amdgpu" / "real.bin").unlink()
    assert Store([tmp_path]).find(NAME) is None
    (tmp_path / "amdgpu" / "loop.bin").symlink_to("loop.bin")
    assert Store([tmp_path]).find("amdgpu/loop.bin") is None


def test_a_missing_files_error_names_the_folders_searched_and_the_package(tmp_path):
    (tmp_path / "b").mkdir()
    with pytest.raises(FirmwareError) as caught:
        Store([tmp_path / "a"], [tmp_path / "b"]).load(NAME, "amdgpu/other.bin")
    text = str(caught.value)
    assert text.startswith(
        f"{NAME} or amdgpu/other.bin is not in {tmp_path / 'b'}, {tmp_path / 'a'}; install firmware-amd-graphics"
    )
    with pytest.raises(FirmwareError, match=r"^odd/x\.bin is not in any folder; name its folder$"):
        Store([]).load("odd/x.bin")


def test_a_named_place_that_is_missing_is_reported_at_once(tmp_path):
    with pytest.raises(FirmwareError, match="slip, where firmware should be, is not there"):
        Store(None, [tmp_path / "slip"])


def test_the_kernels_folders_in_the_kernels_order(tmp_path):
    """Documentation/driver-api/firmware/fw_search_path.rst: the parameter, updates of this kernel, updates, this
    kernel, the folder.
    """
    parameter = put(tmp_path / "path", b"/srv/my firmware\n")
    release = os.uname().release
    folders = [str(folder) for folder in system_folders(parameter)]
    assert folders[:5] == [
        "/srv/my firmware",
        f"/lib/firmware/updates/{release}",
        "/lib/firmware/updates",
        f"/lib/firmware/{release}",
        "/lib/firmware",
    ]
    parameter.write_text("\n")
    assert [str(folder) for folder in system_folders(parameter)] == folders[1:]
    assert [str(folder) for folder in system_folders(tmp_path / "none")] == folders[1:]


@pytest.mark.parametrize("name", ["../etc/passwd", "/etc/passwd", "amdgpu/../../x", ""])
def test_a_name_that_leaves_the_folder_is_the_callers_mistake(tmp_path, name):
    with pytest.raises(ValueError, match="not a name below a firmware folder"):
        Store([tmp_path]).find(name)


@pytest.mark.parametrize("suffix", [".xz", ".zst"])
def test_a_compressed_file_cut_or_bent_is_an_error(tmp_path, suffix):
    whole = compressed(suffix)
    for damaged in (
        b"",
        whole[:4],
        whole[: len(whole) // 2],
        whole[:-1],
        b"\0" * 40,
        whole[:8] + b"\xff" * 8 + whole[16:],
    ):
        path = put(tmp_path / (NAME + suffix), damaged)
        with pytest.raises(FirmwareError, match=f"{path} (does not unpack|is cut short)"):
            Store([tmp_path]).load(NAME)


@pytest.mark.parametrize("suffix", [".xz", ".zst"])
def test_a_bomb_stops_at_the_bound(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(store, "MAX_BYTES", 1 << 20)
    path = put(tmp_path / (NAME + suffix), compressed(suffix, bytes((1 << 20) + 1)))
    assert path.stat().st_size < 1 << 16
    with pytest.raises(FirmwareError, match="holds more than 1048576 bytes"):
        Store([tmp_path]).load(NAME)
    put(path, compressed(suffix, bytes(1 << 20)))
    assert len(Store([tmp_path]).load(NAME).data) == 1 << 20


def test_a_window_larger_than_memory_should_give_is_refused(tmp_path):
    """RFC 8878: descriptor 0, then a window of 2 to the power of 10 + 31."""
    put(tmp_path / (NAME + ".zst"), b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(16))
    with pytest.raises(FirmwareError, match="does not unpack"):
        Store([tmp_path]).load(NAME)


def test_a_file_larger_than_any_firmware_is_not_read(tmp_path):
    path = put(tmp_path / NAME)
    os.truncate(path, store.MAX_BYTES + 1)
    with pytest.raises(FirmwareError, match=f"{path} has {store.MAX_BYTES + 1} bytes, more than any firmware"):
        Store([tmp_path]).load(NAME)


def test_a_special_file_does_not_block(tmp_path):
    (tmp_path / "amdgpu").mkdir()
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(FirmwareError, match="is not a regular file"):
        Store([tmp_path]).load(NAME)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(FirmwareError, match="is not a regular file"):
        Store([tmp_path]).load(NAME)


def test_a_folder_that_may_not_be_looked_into_is_named(tmp_path, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    # Tests may run as root, and root ignores permissions.
    monkeypatch.setattr("pathlib.Path.stat", refuse)
    with pytest.raises(FirmwareError, match=r"gc_11_0_0_mec\.bin cannot be accessed: Permission denied"):
        Store([tmp_path]).load(NAME)


def test_a_file_that_cannot_be_opened_is_named():
    with pytest.raises(FirmwareError, match=r"^/nowhere/x\.bin cannot be opened: No such file or directory$"):
        load_file(store.Path("/nowhere/x.bin"))
