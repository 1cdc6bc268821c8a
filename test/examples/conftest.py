"""What the programs of `examples/` are run with, and what they must print."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import ringup
from ringup.onnx.library import library

FOLDER = Path(__file__).resolve().parents[2] / "examples"
CARD = "virtual:navi31"
ARGUMENTS = {
    "raw_packets": ([CARD], r"wrote 0x12345678 0x9abcdef0 at 0x1\w{8}"),
    "assembler_kernel": ([CARD], r"\[1\. 2\. 3\. 4\.\] \.\.\. 32\.0"),
    "clang_kernel": ([CARD], r"saxpy.* on navi31"),
    "copies_and_points": ([CARD], r"turn 2: 3\.0"),
    "hsa_signals": ([CARD], r"both kernels ran: 2\.0; the second took \d+\.\d\d us, and began \d+\.\d\d us behind"),
    "kept_stream": ([CARD], r"submitted 4 times: \[1\.0, 1\.0, 1\.0, 1\.0\]"),
    "profile_to_perfetto": ([CARD, "OUT"], r"(?s)copy \d+.*add_one .*add_one .*perfetto"),
    "read_registers": ([CARD], r"(?s)GRBM_STATUS is at byte 0x\w+.*GRBM_STATUS\(.*24560 MiB"),
    "firmware_container": (["FIRMWARE"], r"(?s)gc_11_0_0_mec\.bin: \w+ 0x\w+.*half of it: "),
    "onnx_model": (
        [CARD, "MODEL"],
        r"(?s)Model\(softmax\.onnx: x float32\[N, 3\].*y float32\[1, 3\]: 0\.\d+ to 0\.\d+",
    ),
    "decode": ([CARD], r"(?s)token 0: \d+ ms, graphs compiled: 1\n.*token 47: \d+ ms, graphs compiled: 0\n'r.{48}'"),
    "tensors": (
        [CARD],
        r"(?s)<Tensor \[1, 8\] float32, not computed: \w+>.*shape=\[1, 8\], dtype=float32.*\[\[7\.0, 10\.0\], \[15\.0, 22\.0\]\]",
    ),
    "train_cnn": ([CARD, "WEIGHTS"], r"(?s)epoch 3: loss 0\.\d+, right: 100.*from the file: 100"),
    "train_lstm": ([CARD], r"(?s)step 12: loss 0\.\d+, gradients 0\.\d+, right: 9.*\n(\w{3})\w -> a\1\n"),
    "train_mlp": ([CARD, "WEIGHTS"], r"(?s)\(4\): Linear.*epoch 5: loss .*right: "),
    "training": ([CARD], r"(?s)step 0: loss .*XOR: "),
    "sentences": ([CARD], r"(?s)0\.\d+  The cat sleeps.*kernels compiled for gfx1100"),
    "two_cards": (
        [CARD, "virtual:navi33"],
        r"<virtual:navi31 reaches virtual:navi33 directly>\nboth kernels ran: 2\.0",
    ),
    "usb_bring_up": ([f"{CARD}@asm2464pd"], r"(?s)ms  .*96 compute units, 24560 MiB.*65536 bytes went there"),
}
# These compile networks and take most of the time: they are the tests of a file of their own.
LEARNING = ("decode", "train_cnn", "train_lstm", "train_mlp", "training")
# The model's own test takes half a minute. `make fuzz` runs this one too.
SLOW = ("sentences",)


def model_of_softmax():
    """Return an ONNX file."""
    text = '<ir_version: 8, opset_import: ["": 17]> m (float[N, 3] x) => (float[N, 3] y) { y = Softmax(x) }'
    return library().parser.parse_model(text).SerializeToString()


def pytest_generate_tests(metafunc):
    """Give each of the two files its programs."""
    if "example" in metafunc.fixturenames:
        learns = metafunc.module.__name__.endswith("test_learning")
        names = [one for one in ARGUMENTS if (one in LEARNING) == learns]
        marked = [pytest.param(one, marks=pytest.mark.fuzz) if one in SLOW else one for one in names]
        metafunc.parametrize("example", marked)


@pytest.fixture(scope="session")
def arguments():
    return ARGUMENTS


@pytest.fixture(scope="session")
def folder():
    return FOLDER


@pytest.fixture
def run_example(capsys, monkeypatch, tmp_path):
    """`run_example(name)` runs a program, which must print what is said above, on another card with its name."""

    def run(name, card=CARD):
        words, wanted = ARGUMENTS[name]
        words = [word.replace(CARD, card) for word in words]
        wanted = wanted.replace(CARD.partition(":")[2], card.partition(":")[2])
        if words == ["FIRMWARE"]:
            image = tmp_path / "gc_11_0_0_mec.bin"
            image.write_bytes(ringup.connect(CARD).firmware(image.name))
            words = [str(image)]
        files = {"OUT": "trace.pftrace", "WEIGHTS": "weights.safetensors", "MODEL": "softmax.onnx"}
        if "MODEL" in words:
            (tmp_path / files["MODEL"]).write_bytes(model_of_softmax())
        words = [str(tmp_path / files[word]) if word in files else word for word in words]
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        monkeypatch.syspath_prepend(str(FOLDER))
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        assert re.search(wanted, capsys.readouterr().out)

    return run
