"""Names of cards, and transports of other packages."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import ringup
from ringup.cards import GROUP, Found
from ringup.errors import DeviceLost, NoSuchCard, NotSupported, RingupError, TransportError

HERE = __name__


class Shelf:
    """A transport with two cards; the second is gone when it is opened."""

    def find(self):
        yield Found("shelf:0", "a card")
        yield Found("shelf:1", "another", skipped="held by process 42")

    def open(self, rest):
        if rest == "1":
            raise DeviceLost("opening shelf:1: the card is gone")
        return f"card {rest}"


class Broken(Shelf):
    def find(self):
        raise DeviceLost("the bus fell over")


@pytest.fixture
def installed(monkeypatch):
    """Make transports appear as if installed packages offered them."""

    def install(**transports):
        import types

        module = types.ModuleType("ringup_test_transports")
        for name, transport in transports.items():
            setattr(module, name, transport)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entries = [EntryPoint(name, f"{module.__name__}:{name}", GROUP) for name in transports]
        monkeypatch.setattr("ringup.cards.entry_points", lambda group: entries if group == GROUP else [])

    return install


def test_a_name_is_opened_by_the_transport_of_its_prefix(installed):
    installed(shelf=Shelf())
    assert ringup.open("shelf:0") == "card 0"
    assert ringup.open("shelf:a:b") == "card a:b"
    with pytest.raises(DeviceLost, match="shelf:1"):
        ringup.open("shelf:1")


def test_every_card_is_listed_and_a_transport_that_fails_hides_no_other(installed):
    installed(shelf=Shelf(), broken=Broken())
    assert ringup.cards() == [
        Found("broken:", "the transport failed", "the bus fell over"),
        Found("shelf:0", "a card"),
        Found("shelf:1", "another", "held by process 42"),
    ]


class Dropping(Shelf):
    """A transport that sees a card, then meets an error of the operating system."""

    def find(self):
        yield Found("dropping:0", "a card")
        raise OSError(5, "Input/output error")


class Odd(Shelf):
    def find(self):
        return ["odd:0"]


@pytest.mark.parametrize(
    ("transport", "seen", "reason"),
    [
        (Dropping(), [Found("bad:0", "a card")], "OSError: [Errno 5] Input/output error"),
        (Odd(), [], "the transport 'bad' lists 'odd:0', which is not a `ringup.cards.Found`"),
        (None, [], "loading the transport 'bad' (ringup_test_transports:bad): None has no function find or open"),
    ],
)
def test_a_transport_that_fails_in_its_own_way_hides_no_other(installed, transport, seen, reason):
    installed(bad=transport, shelf=Shelf())
    names = [card.name for card in ringup.cards()]
    assert names == [card.name.replace("bad", "dropping") for card in seen] + ["bad:", "shelf:0", "shelf:1"]
    assert ringup.cards()[len(seen)].skipped == reason


def test_a_transport_whose_import_fails_in_any_way_hides_no_other(tmp_path, monkeypatch):
    (tmp_path / "ringup_torn.py").write_text("def :\n")
    (tmp_path / "ringup_upset.py").write_text("raise OSError('no bus')\n")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [EntryPoint(name, f"ringup_{name}:x", GROUP) for name in ("torn", "upset")]
    monkeypatch.setattr("ringup.cards.entry_points", lambda group: entries)
    torn, upset = ringup.cards()
    assert torn.skipped.startswith("loading the transport 'torn' (ringup_torn:x): SyntaxError: ")
    assert upset.skipped == "loading the transport 'upset' (ringup_upset:x): OSError: no bus"
    with pytest.raises(TransportError, match="SyntaxError"):
        ringup.open("torn:0")


class Leaving(Shelf):
    def find(self):
        raise SystemExit("no bus")

    def open(self, rest):
        raise SystemExit(3)


class Speechless(Exception):
    def __str__(self):
        raise ValueError


class Silent(Shelf):
    """A transport whose errors have no text."""

    def find(self):
        raise Speechless

    def open(self, rest):
        raise ZeroDivisionError("division by zero")


class Endless(Shelf):
    def find(self):
        while True:
            yield Found("bad:0", "a card")


class Numbered(Shelf):
    def find(self):
        yield Found(0, "a card")


@pytest.mark.parametrize(
    ("transport", "reason"),
    [
        (Leaving(), "SystemExit: no bus"),
        (Silent(), "Speechless: its message cannot be read: ValueError"),
        (Endless(), "the transport 'bad' lists more than 4096 cards"),
        (Numbered(), "the transport 'bad' lists Found(name=0, description='a card', skipped=''), which is not a `rin"),
    ],
)
def test_no_transport_takes_the_list_down(installed, transport, reason):
    installed(bad=transport, shelf=Shelf())
    bad, *others = [card for card in ringup.cards() if card.name != "bad:0"]
    assert bad.skipped.startswith(reason)
    assert [card.name for card in others] == ["shelf:0", "shelf:1"]


def test_an_error_of_a_transport_names_the_transport(installed):
    installed(bad=Silent(), leaving=Leaving())
    with pytest.raises(ZeroDivisionError) as raised:
        ringup.open("bad:0")
    assert raised.value.__notes__ == ["the transport 'bad' (ringup_test_transports:bad) raised it"]
    with pytest.raises(TransportError, match="opening leaving:0: the transport ended Python with 3"):
        ringup.open("leaving:0")


def test_a_package_whose_entry_points_are_damaged_hides_no_transport(tmp_path, monkeypatch):
    folder = tmp_path / "torn-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: torn\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[ringup.transports]\nthis is no pair\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = {card.name: card for card in ringup.cards()}
    assert found["torn:"].description == "the package's entry points cannot be read"
    assert "virtual:navi31" in found


def test_a_package_that_offers_a_prefix_of_ringup_s_own_does_not_get_it(monkeypatch):
    own = EntryPoint("virtual", "ringup.silicon.transport", GROUP)
    for entries in ([own, EntryPoint("virtual", "aaa:x", GROUP)], [EntryPoint("virtual", "zzz:x", GROUP), own]):
        monkeypatch.setattr("ringup.cards.entry_points", lambda group, entries=entries: entries)
        assert all(not card.skipped for card in ringup.cards())


@pytest.mark.parametrize("name", [None, 3, b"pci:0"])
def test_a_name_that_is_no_string_is_the_caller_s_error(installed, name):
    installed()
    with pytest.raises(TypeError, match=r"a card's name is a string such as 'pci:0000:03:00.0', not"):
        ringup.open(name)


@pytest.mark.parametrize("name", ["", "navi31", "shelf", "shelf:", ":0", "nosuch:0"])
def test_a_malformed_name_is_refused_with_the_form_of_names(installed, name):
    installed(shelf=Shelf())
    with pytest.raises(NoSuchCard, match=r"names no card: a name is PREFIX:REST .*pci:0000:03:00.0"):
        ringup.open(name)


def test_a_known_prefix_without_its_transport_says_so(installed):
    installed(shelf=Shelf())
    with pytest.raises(NotSupported, match="'kgsl:0': no installed package offers the transport 'kgsl'"):
        ringup.open("kgsl:0")


def test_a_transport_that_does_not_load_is_one_error(monkeypatch):
    monkeypatch.setattr("ringup.cards.entry_points", lambda group: [EntryPoint("shelf", "no_such_module:x", GROUP)])
    with pytest.raises(TransportError, match="loading the transport 'shelf' \\(no_such_module:x\\)"):
        ringup.open("shelf:0")
    assert "loading the transport" in ringup.cards()[0].skipped


def test_the_public_names_come_from_the_package():
    assert ringup.RingupError is RingupError
    assert callable(ringup.open)
    with pytest.raises(AttributeError, match="no attribute nonsense"):
        _ = ringup.nonsense


def test_importing_the_package_loads_nothing_optional():
    code = "import sys, ringup; print(sorted(m for m in sys.modules if m.split('.')[0] in ('ringup', 'rich', 'cffi', 'clang', 'construct')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ringup']"


def test_importing_the_amd_driver_loads_no_reader_of_images():
    code = "import sys, ringup.drivers.amd.card; print(sorted(m for m in sys.modules if m.startswith(('construct', 'ringup.firmware.amd'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_list_works_after_its_module_was_imported():
    code = "import ringup; from ringup.cards import Found; print(type(ringup.cards()).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "list"
