"""Downloads header packages, tools and published kernels from the distribution's mirror or Python's registry into a
cache folder. Installs nothing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

from ringup.autogen.generate.isa.probe import loader
from ringup.autogen.generate.manifest import Package
from ringup.autogen.generate.sources import STAMP
from ringup.errors import HeaderError
from ringup.tools.common.paths import one_at_a_time

APT = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
COMPONENTS = "main contrib non-free non-free-firmware"
TIMEOUT_S = 900  # TIMEOUT: a 200 MB package over a slow line; apt itself stops much earlier on a dead one

LOG = logging.getLogger(__name__)

Say = Callable[[str], None]  # called with each step; a progress display, or nothing


def fetch(package: Package, cache: Path, say: Say) -> Path:
    """Put `package` under `cache`, completely or not at all, and return its folder. An existing package is left alone.

    Raises `HeaderError` with the last line of apt or tar if they fail, and if the cache folder cannot be written.
    """
    if package.kind == "tree":
        raise HeaderError(
            f"{package.label} is in no registry: name its source tree with --tree {package.label}=DIR (release "
            f"{package.read})"
        )
    for tool in () if package.kind == "wheel" else ("apt-get", "dpkg-deb", "tar", "xz"):
        if shutil.which(tool) is None:
            raise HeaderError(
                f"fetching {package.label} needs {tool}: install it (Debian packages apt, dpkg, tar, xz-utils)"
            )
    try:
        return _fetch_into(package, cache, say)
    except OSError as error:
        raise HeaderError(
            f"fetching {package.label} into {cache}: {error}; name another folder with --cache or RINGUP_CACHE"
        ) from error


def _fetch_into(package: Package, cache: Path, say: Say) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / package.label
    with one_at_a_time(target):
        if (target / STAMP).is_file():
            stale = _stale(package, target)
            if not stale:
                LOG.info("%s is in place already: %s", package.label, target)
                return target
            say(f"{package.label}: fetching it again: {stale}")
        with tempfile.TemporaryDirectory(prefix=f".{package.label}.", dir=cache) as folder:
            work, out = Path(folder), Path(folder) / "out"
            out.mkdir()
            say(f"{package.label}: downloading {package.name}")
            version = _download_and_unpack(package, work, out, say)
            if problem := _broken_program(package, out):
                raise HeaderError(f"{package.label}: {problem}; it was not put into {cache}")
            (out / STAMP).write_text(version + "\n", encoding="utf-8")
            shutil.rmtree(target, ignore_errors=True)
            out.rename(target)
    say(f"{package.label}: {version} is in place")
    return target


def _download_and_unpack(package: Package, work: Path, out: Path, say: Say) -> str:
    if package.kind == "wheel":
        return _unpack_wheel(package, work, out)
    options = _options(package.suites, work)
    _run([*_apt(options), "update"], work, f"reading the package lists of {' '.join(package.suites) or 'this system'}")
    if package.kind == "deb-source":
        command = [*_apt(options), "source", "--download-only", package.name]
        error = _try(command, work)
        tars = sorted(work.glob(f"{package.name}_*.orig.tar.*z"))
        # the mirror may lack the packaging files; only the tar is needed
        if not tars:
            raise HeaderError(f"downloading the source of {package.name}: no upstream tar came: {error}")
        say(f"{package.label}: unpacking {tars[0].name}")
        _untar(tars[0], out, package.take)
        return tars[0].name.split("_")[1].split(".orig.")[0]
    names = _closure(package, options, work) if package.kind == "deb-root" else [package.name]
    _run([*_apt(options), "download", *names], work, f"downloading {' '.join(names)}")
    debs = sorted(work.glob("*.deb"))
    versions = {deb.name.split("_")[0]: unquote(deb.name.split("_")[1]) for deb in debs}
    for name in names:
        if name not in versions:
            raise HeaderError(f"downloading {name}: apt-get printed nothing and made no package")
    raw = out if package.kind == "deb-root" else work / "raw"
    for deb in debs:
        say(f"{package.label}: unpacking {deb.name}")
        _run(["dpkg-deb", "-x", str(deb), str(raw)], work, f"unpacking {deb.name}")
    if package.kind == "deb":
        if package.inside:
            _untar(raw / package.inside, out, package.take)
        else:
            _copy(raw, out, package.take)
    return versions[package.name]


def _stale(package: Package, target: Path) -> str:
    """Return why an existing package is downloaded again; empty if it is in order."""
    if package.kind == "wheel" and (version := (target / STAMP).read_text().strip()) != package.read:
        return f"{version} is installed, {package.read} is needed"
    return _broken_program(package, target)


def _broken_program(package: Package, root: Path) -> str:
    """Return which program of a package does not run with the files of its root, and why; empty if all run.

    Libraries of this computer do not count, because another computer may lack them.
    """
    for name in package.programs:
        program = root / package.folder / name
        if not program.is_file():
            return f"there is no {package.folder}/{name}"
        start = loader(root, program)
        # Links and paths with dots are resolved; a library outside the root does not count.
        listed, problem = _output([*start, "--list", str(program)], root)
        for line in listed.splitlines():
            library, arrow, rest = line.strip().partition(" => ")
            path = rest.split(" (")[0]
            if arrow and not Path(path).resolve().is_relative_to(root.resolve()):
                return f"{name} needs {library}, which the packages do not contain"
        problem = problem or _try([*start, str(program), "--version"], root)
        if problem:
            return f"{name} does not run: {problem}"
    return ""


def _closure(package: Package, options: Sequence[str], work: Path) -> list[str]:
    """Return a package and all of its dependencies, as if nothing were installed."""
    (work / "status").touch()
    command = [*_apt([*options, "-o", f"Dir::State::status={work / 'status'}"]), "--print-uris"]
    listed, problem = _output([*command, "--no-install-recommends", "install", package.name], work)
    if problem:
        raise HeaderError(f"finding what {package.name} depends on: {problem}")
    # A line is 'URI' FILE SIZE HASH, and FILE is NAME_VERSION_ARCHITECTURE.deb.
    return sorted({line.split()[1].split("_")[0] for line in listed.splitlines() if line.startswith("'")})


def _unpack_wheel(package: Package, work: Path, out: Path) -> str:
    """Extract the needed files of one version of a Python package, without installing it."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]
    _run([*pip, "-d", str(work), f"{package.name}=={package.read}"], work, f"downloading {package.name} {package.read}")
    wheels = sorted(work.glob("*.whl"))
    if not wheels:
        raise HeaderError(f"downloading {package.name} {package.read}: pip printed nothing and made no wheel")
    with zipfile.ZipFile(wheels[0]) as archive:
        wanted = [name for name in archive.namelist() if any(fnmatch(name, pattern) for pattern in package.take)]
        if not wanted:
            raise HeaderError(f"{wheels[0].name} holds no {' or '.join(package.take)}")
        for name in wanted:
            # A zip file's upper half of the attributes holds the mode; extract() leaves it out.
            runs = archive.getinfo(name).external_attr >> 16 & 0o100
            Path(archive.extract(name, out)).chmod(0o755 if runs else 0o644)
    return package.read


def _untar(tar: Path, out: Path, take: Sequence[str]) -> None:
    if not tar.is_file():
        raise HeaderError(f"the package holds no {tar.name}")
    patterns = ["--wildcards", *take] if take and list(take) != ["*"] else []
    _run(["tar", "-xf", str(tar), "-C", str(out), "--no-same-owner", *patterns], out, f"unpacking {tar.name}")


def _copy(raw: Path, out: Path, take: Sequence[str]) -> None:
    """Copy the needed files of an unpacked package; links are left out."""
    found = [path for path in sorted(raw.rglob("*")) if path.is_file() and not path.is_symlink()]
    wanted = [path for path in found if any(fnmatch(str(path.relative_to(raw)), pattern) for pattern in take)]
    if not wanted:
        raise HeaderError(f"the package holds no {' or '.join(take)}")
    for path in wanted:
        target = out / path.relative_to(raw)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _apt(options: Sequence[str]) -> list[str]:
    return [
        "apt-get",
        "-qq",
        "-o",
        f"APT::Sandbox::User={os.environ.get('USER', 'root')}",
        "-o",
        "Acquire::Retries=3",
        "-o",
        # an outdated mirror is still signed; the files are read, never installed
        "Acquire::Check-Valid-Until=false",
        *options,
    ]


def _options(suites: Sequence[str], work: Path) -> list[str]:
    """Return apt options that read only `suites`, from separate lists: those of the system are neither read nor
    changed.
    """
    if suites:
        (work / "only.sources").write_text("\n\n".join(_stanzas(suites)) + "\n", encoding="utf-8")
        sources = [f"Dir::Etc::sourcelist={work}/only.sources", "Dir::Etc::sourceparts=/dev/null"]
    else:
        sources = []
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "archives" / "partial").mkdir(parents=True)
    settings = [
        *sources,
        f"Dir::State::lists={work}/lists",
        f"Dir::Cache={work}",
        "Dir::Cache::pkgcache=",
        "Dir::Cache::srcpkgcache=",
    ]
    return [part for setting in settings for part in ("-o", setting)]


def _stanzas(suites: Sequence[str]) -> Iterator[str]:
    """Yield a source stanza for `suites` on each archive the system itself uses for that kind of suite."""
    archives = list(_archives())
    if not archives:
        raise HeaderError(f"no Debian archive is named in {APT}/sources.list or the files of {APT}/sources.list.d")
    for security in (False, True):
        wanted = [suite for suite in suites if suite.endswith("-security") == security]
        uri, keys = next(((u, k) for u, k, s in archives if s == security), ("", ""))
        if wanted and uri:
            signed = f"\nSigned-By: {keys}" if keys else ""
            yield f"Types: deb deb-src\nURIs: {uri}\nSuites: {' '.join(wanted)}\nComponents: {COMPONENTS}{signed}"


def _archives() -> Iterator[tuple[str, str, bool]]:
    """Yield (URI, key file, is a security archive) of the system's Debian sources, in both of apt's formats."""
    release = OS_RELEASE.read_text(encoding="utf-8", errors="replace") if OS_RELEASE.is_file() else ""
    named = re.search(r"^VERSION_CODENAME=\"?(\w+)", release, re.MULTILINE)
    ours = rf"({named[1] if named else 'stable'}|stable)(/updates|-updates|-security)?"
    parts = APT / "sources.list.d"
    # Installers name the file as they like; the usual ones come first.
    usual = [parts / "debian.sources", APT / "sources.list"]
    for path in dict.fromkeys((*usual, *sorted(parts.glob("*.sources")), *sorted(parts.glob("*.list")))):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for stanza in re.split(r"\n\s*\n", text) if path.suffix == ".sources" else ():
            fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", stanza, re.MULTILINE))
            suites, components = fields.get("Suites", "").split(), fields.get("Components", "").split()
            # Other publishers for Debian have their own suites or components.
            if "URIs" in fields and "main" in components and any(re.fullmatch(ours, suite) for suite in suites):
                yield fields["URIs"].split()[0], fields.get("Signed-By", ""), "-security" in fields["Suites"]
        for options, uri, suite, components in re.findall(
            r"^deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)[ \t]+(.+)$", text, re.MULTILINE
        ):
            keys = re.search(r"signed-by=(\S+)", options)
            if "main" in components.split() and re.fullmatch(ours, suite):
                yield uri, keys[1] if keys else "", "-security" in suite


def _run(command: Sequence[str], folder: Path, doing: str) -> None:
    if error := _try(command, folder):
        raise HeaderError(f"{doing}: {error}")


def _try(command: Sequence[str], folder: Path) -> str:
    """Run a command; return its error, empty if it succeeded."""
    return _output(command, folder)[1]


def _output(command: Sequence[str], folder: Path) -> tuple[str, str]:
    """Run a command; return its output and its error, which is empty if it succeeded."""
    LOG.debug("running %s", " ".join(command))
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"{command[0]} did not end within {TIMEOUT_S} s"
    except OSError as error:
        return "", f"{command[0]} cannot be started: {error.strerror}"
    if done.returncode == 0:
        return done.stdout, ""
    errors = [
        line for line in done.stderr.splitlines() if line.startswith(("E:", "tar:", "dpkg", "ERROR:"))
    ] or done.stderr.splitlines()
    return done.stdout, (errors or [f"{command[0]} ended with {done.returncode}"])[-1]
