"""SASS against nvdisasm of CUDA 13.5: words of every row of every chip have nvdisasm's text."""

import pytest

from ringup.compiler.isa.sass import CHIPS, machine


@pytest.mark.parametrize("chip", CHIPS)
def test_words_of_every_row_have_nvdisasms_text(chip, nvdisasm, random_words, tmp_path):
    words = random_words(chip, 3, 20)
    texts = nvdisasm.texts(chip, words, tmp_path)
    wrong = [
        (f"{word:032x}", text, machine(chip).text(word, index * 16))
        for index, (word, text) in enumerate(zip(words, texts, strict=True))
        if machine(chip).text(word, index * 16) != text
    ]
    assert len(words) > 1_000
    assert wrong == []
