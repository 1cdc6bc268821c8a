"""Every exception that ringup raises on purpose. Imports nothing; every module may import it.

A message says what was attempted, what was seen and what to do next. `exit_code` is the exit status of the `ringup`
command. `ValueError` and `TypeError` are for wrong arguments; these exceptions are for failures outside the caller's
code.
"""


class RingupError(Exception):
    """Base of all exceptions of ringup."""

    exit_code = 1
    # Whether the result that a command printed already includes this error.
    in_result = False


class NoSuchCard(RingupError):
    """No transport knows a card of that name, or the card is not plugged in."""

    exit_code = 10


class NotSupported(RingupError):
    """The card, chip or feature is known, and ringup cannot drive it."""

    exit_code = 11


class PermissionNeeded(RingupError):
    """The operating system denied access; the message gives the rule that would allow it."""

    exit_code = 12


class CardBusy(RingupError):
    """Another process, a driver or the console holds the card; the message names the holder."""

    exit_code = 13


class LinkDown(RingupError):
    """The path to the card exists, but its link does not train: cable, power, slot or bridge."""

    exit_code = 14


class DeviceLost(RingupError):
    """The card was present and is gone: unplugged, link dropped, all ones on every read."""

    exit_code = 20


class DeviceTimeout(RingupError):
    """A bounded wait for the card ran out; the message gives the register, its last value and the bound."""

    exit_code = 21


class DeviceHung(RingupError):
    """A queue or engine stopped making progress; the card needs a reset before it works again."""

    exit_code = 22


class DeviceFault(RingupError):
    """The card reported a fault of its work, such as an access to an unmapped address."""

    exit_code = 23


class OutOfMemory(RingupError):
    """Memory ran out; the message gives the size requested, the free size, the largest piece and the largest users."""

    exit_code = 24


class FirmwareError(RingupError):
    """A firmware image is missing, damaged, of the wrong kind, or was refused by the card."""

    exit_code = 30


class HeaderError(RingupError):
    """A header, a header package, libclang or the facts made from them are missing, damaged or not as expected."""

    exit_code = 31


class CompileError(RingupError):
    """A kernel could not be compiled or assembled."""

    exit_code = 32


class WrongTarget(RingupError):
    """A program was built for another chip than the one it was loaded on."""

    exit_code = 33


class TransportError(RingupError):
    """The path to the card failed or gave invalid answers: kernel node, USB bridge, network peer, transcript."""

    exit_code = 40


class GuestError(RingupError):
    """The guest of a virtual card (driver, firmware or program) did something that fails on the real card."""

    exit_code = 50


class Unmodelled(RingupError):
    """The real card has this feature and the virtual card lacks it: a gap in ringup, not an error of the guest."""

    exit_code = 51


# By package: the extra of ringup that installs it.
EXTRAS = {
    "llvmlite": "virtual",
    "numpy": "tensor",
    "rich": "cli",
    "shtab": "cli",
    "ml_dtypes": "models",
    "clang": "generate",
    "onnx": "onnx",
}


def missing_package(error: ImportError, doing: str, extra: str = "") -> RingupError | None:
    """Return the error for a package that is not installed; None if something else could not be imported.

    `doing` is what needs the package. `extra` is the extra of ringup that installs it, if it is not that of `EXTRAS`.
    """
    name = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or name not in EXTRAS:
        return None
    return NotSupported(
        f"{doing} needs the package {name}, which is not installed: pip install 'ringup[{extra or EXTRAS[name]}]'"
    )
