"""The error tree: complete, documented, and with distinct exit codes."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ringup.errors
from ringup.errors import EXTRAS, RingupError

NAMED_IN_THE_DESIGN = {
    *(
        "NoSuchCard",
        "NotSupported",
        "PermissionNeeded",
        "CardBusy",
        "LinkDown",
        "DeviceLost",
        "DeviceTimeout",
        "DeviceHung",
        "DeviceFault",
        "OutOfMemory",
    ),
    *("FirmwareError", "HeaderError", "CompileError", "WrongTarget", "TransportError"),
}
OF_VIRTUAL_CARDS = {"GuestError", "Unmodelled"}


def test_the_tree_is_the_one_of_the_design():
    assert {cls.__name__ for cls in RingupError.__subclasses__()} == NAMED_IN_THE_DESIGN | OF_VIRTUAL_CARDS


def test_each_error_has_an_exit_code_of_its_own():
    codes = [cls.exit_code for cls in (RingupError, *RingupError.__subclasses__())]
    assert len(set(codes)) == len(codes)
    # 2 is wrong usage, shells use 126 and above
    assert all(0 < code < 126 and code != 2 for code in codes)


def test_the_module_imports_nothing():
    text = Path(ringup.errors.__file__).read_text()
    assert "import " not in text.replace("Imports nothing", "").replace("may import it", "")


def test_every_package_of_an_extra_is_known_by_it():
    """Return the import names of the packages that `pip install ringup` leaves out, each with its extra."""
    project = tomllib.loads((Path(ringup.errors.__file__).parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    imported = {"libclang": "clang", "ml-dtypes": "ml_dtypes"}
    for name, extra in EXTRAS.items():
        packages = [re.split(r"[^A-Za-z0-9_.-]", one)[0] for one in extras[extra]]
        assert name in [imported.get(one, one) for one in packages], name
    brought = {
        re.split(r"[^A-Za-z0-9_.-]", one)[0]
        for key in extras
        if key not in ("all", "dev", "docs")
        for one in extras[key]
    }
    assert {imported.get(one, one) for one in brought} == set(EXTRAS)
    core = {re.split(r"[^A-Za-z0-9_.-]", one)[0] for one in project["dependencies"]}
    assert core == {"construct", "cffi", "msgpack", "pyusb", "zstandard"}


WITHOUT = (
    ("numpy", "ringup.Tensor([1])", "ringup.Tensor", "tensor"),
    ("numpy", "ringup.open('virtual:navi31')", "opening a virtual card", "virtual"),
    ("llvmlite", "ringup.open('virtual:navi31')", "opening a virtual card", "virtual"),
    ("numpy", "print(*ringup.cards())", "listing virtual cards", "virtual"),
)


@pytest.mark.parametrize(("package", "line", "doing", "extra"), WITHOUT, ids=lambda one: one[:20])
def test_a_package_that_is_not_installed_is_named_with_its_extra(package, line, doing, extra):
    code = "\n".join((
        f"import sys; sys.modules[{package!r}] = None; import ringup",
        f"try: {line}",
        "except ringup.RingupError as error: print(error)",
    ))  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    wanted = f"{doing} needs the package {package}, which is not installed: pip install 'ringup[{extra}]'"
    assert wanted in done.stdout


@pytest.mark.parametrize(
    "name", ["nn", "optim", "autograd", "fft", "linalg", "special", "array_api", "compiler.tensor"]
)
def test_packages_of_tensors_say_what_to_install(name):
    code = f"import sys; sys.modules['numpy'] = None; import ringup.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    wanted = "the tensor language needs the package numpy, which is not installed: pip install 'ringup[tensor]'"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {wanted}"


def test_the_command_names_the_extra_too():
    code = "\n".join((
        "import sys; sys.modules['shtab'] = None; sys.argv = ['ringup', 'completion', 'bash']",
        "from ringup.tools.command_line.cli import main",
        "sys.exit(main())",
    ))  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ringup.errors.NotSupported.exit_code
    assert "needs the package shtab, which is not installed: pip install 'ringup[cli]'" in done.stderr


def test_completions_are_made_without_the_packages_of_other_commands():
    code = "\n".join((
        "import sys; sys.modules['numpy'] = None; sys.argv = ['ringup', 'completion', 'bash']",
        "from ringup.tools.command_line.cli import main",
        "sys.exit(main())",
    ))  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert " compile explain " in done.stdout
    assert "--firmware" in done.stdout
