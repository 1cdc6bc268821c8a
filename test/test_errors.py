"""The error tree: complete, documented, told apart by exit code."""

from pathlib import Path

import ringup.errors
from ringup.errors import RingupError

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
    assert all(0 < code < 126 and code != 2 for code in codes)  # 2 is wrong usage, shells use 126 and up


def test_the_module_imports_nothing():
    text = Path(ringup.errors.__file__).read_text()
    assert "import " not in text.replace("Imports nothing", "").replace("may import it", "")
