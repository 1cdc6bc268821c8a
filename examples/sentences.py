"""A published sentence transformer (all-MiniLM-L6-v2, 90 MB) on a card: which sentences mean the same?

make model      # fetches it, once
python examples/sentences.py virtual:navi31
"""

import sys

import ringup
from ringup.tools.embedder.files import open_files
from ringup.tools.embedder.on_card import Sentences

SENTENCES = ("A kitten naps by the fire.", "The cat sleeps on the warm stove.", "The train leaves at noon.")


def main(name: str) -> None:
    with ringup.device(name) as device:
        embeddings = Sentences(open_files()).embed(SENTENCES)
        likeness = embeddings @ embeddings.T
        for text, cosine in zip(SENTENCES[1:], likeness[0, 1:], strict=True):
            print(f"{cosine:.3f}  {text}")
        print(f"{len(device.graphs[-1].binaries)} kernels compiled for {device.target}")
        assert likeness[0, 1] > likeness[0, 2]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
