"""Find firmware files on this machine: the kernel's folders, and folders and files given by the user.

The kernel looks in the folder of its parameter `firmware_class.path`, then below /lib/firmware, for the plain file and
then for a compressed one. This module does the same. Nothing is downloaded. Files are untrusted input: sizes are
bounded before and while they unpack. Source: Linux Documentation/driver-api/firmware/fw_search_path.rst;
drivers/base/firmware_loader/main.c, fw_path.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ringup.errors import FirmwareError

ROOT = Path("/lib/firmware")
PARAMETER = Path("/sys/module/firmware_class/parameters/path")
# Of a file and of its unpacked contents. The largest files of a GPU are NVIDIA's `gsp_ga10x.bin`: 64 MB in release 570.
MAX_BYTES = 128 << 20
XZ_MEMORY_BYTES = 128 << 20  # limit of a decoder: `xz -9` needs 65 MB
ZSTD_WINDOW_BYTES = 128 << 20
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}  # a dangling link, or one to itself, is not a file
# First folder of a name: packages that contain it.
PACKAGES = {
    "amdgpu": "firmware-amd-graphics (Debian), linux-firmware (Ubuntu, Arch), amd-gpu-firmware (Fedora)",
    "nvidia": "firmware-nvidia-graphics (Debian), linux-firmware (Ubuntu, Arch), nvidia-gpu-firmware (Fedora)",
    "qcom": "firmware-qcom-soc (Debian), linux-firmware (Ubuntu, Arch), qcom-firmware (Fedora)",
}


@dataclass(frozen=True)
class FoundFile:
    """A file's unpacked bytes and their path. `name` is the requested name."""

    name: str
    path: Path
    data: bytes = field(repr=False)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def system_folders(parameter: Path = PARAMETER, root: Path = ROOT) -> tuple[Path, ...]:
    """Return the kernel's firmware folders in its search order."""
    release = os.uname().release
    folders = [root / "updates" / release, root / "updates", root / release, root, Path("/usr") / root.relative_to("/")]
    try:
        text = parameter.read_text(encoding="utf-8", errors="replace").strip()
    # The kernel has no such parameter, or this is another operating system.
    except OSError:
        text = ""
    if text:
        folders.insert(0, Path(text))
    return tuple(folders)


class Store:
    """Finds firmware by its kernel name, `amdgpu/gc_11_0_0_mec.bin`.

    `explicit` paths come first. A folder may hold the kernel's tree or bare files; a file serves only its own name.
    `folders` replaces the system's folders. Raises `FirmwareError` if an explicit path does not exist.
    """

    def __init__(self, folders: Iterable[Path | str] | None = None, explicit: Iterable[Path | str] = ()) -> None:
        self.folders = system_folders() if folders is None else tuple(Path(folder) for folder in folders)
        self.explicit = tuple(Path(path) for path in explicit)
        for path in self.explicit:
            # A typing error must not load another folder's firmware.
            if not _is_there(path):
                raise FirmwareError(f"{path}, where firmware should be, is not there{_dangling(path)}")

    def find(self, name: str) -> FoundFile | None:
        """Return a file, or None if there is none. Raises `FirmwareError` if it cannot be read or unpacked."""
        return next((FoundFile(name, path, _load(path)) for path in self._paths(name) if _is_there(path)), None)

    def find_any(self, *names: str) -> FoundFile | None:
        """Return the first of several names that exists, or None; see `find`."""
        return next((found for name in names if (found := self.find(name)) is not None), None)

    def load(self, *names: str) -> FoundFile:
        """Return the first of several names that exists.

        Raises `FirmwareError` otherwise; the message gives the folders searched and the package to install.
        """
        found = self.find_any(*names)
        if found is not None:
            return found
        places = dict.fromkeys(str(place) for place in (*self.explicit, *self.folders))
        package = PACKAGES.get(names[0].partition("/")[0])
        advice = f"; install {package}, or name its folder" if package else "; name its folder"
        links = "".join(_dangling(path, named=True) for name in names for path in self._paths(name))
        raise FirmwareError(f"{' or '.join(names)} is not in {', '.join(places) or 'any folder'}{links}{advice}")

    def _paths(self, name: str) -> Iterable[Path]:
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts:
            raise ValueError(f"{name!r} is not a name below a firmware folder")
        for place in self.explicit:
            if place.is_dir():
                for stem in (place / name, place / parts[-1]):
                    yield from (stem.with_name(stem.name + suffix) for suffix in UNPACKERS)
            elif place.name in {parts[-1] + suffix for suffix in UNPACKERS}:
                yield place
        for folder in self.folders:
            yield from ((folder / name).with_name(parts[-1] + suffix) for suffix in UNPACKERS)


def load_file(path: Path) -> FoundFile:
    """Read one file by its path and unpack it if it is packed. Raises `FirmwareError` if that fails."""
    return FoundFile(path.name, path, _load(path))


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise FirmwareError(f"{path} cannot be accessed: {error.strerror}") from error
    return True


def _dangling(path: Path, *, named: bool = False) -> str:
    """Return a message about a dangling link: its target, and a packed file next to that. Empty for anything else.

    `named` includes the link's own name.
    """
    try:
        target = os.readlink(path)
    except OSError:
        return ""
    if _is_there(path):
        return ""
    aimed = path.parent / target
    others = [aimed.name + suffix for suffix in UNPACKERS if suffix and _is_there(aimed.with_name(aimed.name + suffix))]
    packed = f" ({others[0]} exists: point the link at it)" if others else ""
    return f"; {f'{path} ' if named else 'it '}is a link to {target}, which is not there{packed}"


def _load(path: Path) -> bytes:
    """Read a file and unpack it. The name of a link, or of a renamed file, may not show that it is packed."""
    data = _read(path)
    by_name = next(unpack for suffix, unpack in reversed(tuple(UNPACKERS.items())) if path.name.endswith(suffix))
    unpack = next((unpack for magic, unpack in MAGICS.items() if data.startswith(magic)), by_name)
    return unpack(data, path)


def _read(path: Path) -> bytes:
    """Read a regular file of bounded size, through links."""
    try:
        # A pipe of that name must not block.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise FirmwareError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise FirmwareError(f"{path} is not a regular file")
        if status.st_size > MAX_BYTES:
            raise FirmwareError(f"{path} has {status.st_size} bytes, more than any firmware ({MAX_BYTES})")
        with open(number, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FirmwareError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(number)
    return _bounded(data, path)


def _bounded(data: bytes, path: Path) -> bytes:
    if len(data) > MAX_BYTES:
        raise FirmwareError(f"{path} holds more than {MAX_BYTES} bytes, more than any firmware")
    return data


def _plain(data: bytes, path: Path) -> bytes:
    del path
    return data


def _xz(data: bytes, path: Path) -> bytes:
    """Unpack `.xz`. The kernel's own decoder supports CRC32 only; this one supports any check."""
    # few machines pack their firmware this way
    import lzma

    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)
    try:
        unpacked = decoder.decompress(data, MAX_BYTES + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise FirmwareError(f"{path} does not unpack: {error}") from error
    _bounded(unpacked, path)
    if not decoder.eof:
        raise FirmwareError(f"{path} is cut short: the compressed stream has no end in {len(data)} bytes")
    return unpacked


def _zst(data: bytes, path: Path) -> bytes:
    """Unpack `.zst`; the contents of several frames are joined."""
    import zstandard  # plain files do not need it

    try:
        decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        with decoder.stream_reader(data, read_across_frames=True) as reader:
            unpacked = _bounded(reader.read(MAX_BYTES + 1), path)
        frame = zstandard.get_frame_parameters(data)
    except zstandard.ZstdError as error:
        raise FirmwareError(f"{path} does not unpack: {error}") from error
    if (
        frame.content_size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
        and len(unpacked) < frame.content_size
    ):
        raise FirmwareError(f"{path} is cut short: it unpacks to {len(unpacked)} of {frame.content_size} bytes")
    return unpacked


# In the kernel's order.
UNPACKERS: Mapping[str, Callable[[bytes, Path], bytes]] = {"": _plain, ".zst": _zst, ".xz": _xz}
# The first bytes of packed files. Firmware does not begin so: its first dword is a size or another format's name.
# Source: The .xz File Format, 2.1.1.1; RFC 8878, 3.1.1.
MAGICS: Mapping[bytes, Callable[[bytes, Path], bytes]] = {
    bytes.fromhex("fd377a585a00"): _xz,
    bytes.fromhex("28b52ffd"): _zst,
}
