"""An LSTM learns to repeat letters one place late: embeddings, sequences, gradients that are clipped.

python examples/train_lstm.py virtual:navi31
"""

import sys

import numpy as np

import ringup
from ringup import Tensor, nn, optim

LETTERS, LENGTH, DELAY = "abcd", 4, 1


def texts(count: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of letters (count, LENGTH), and the same moved by DELAY places, with "a" before them."""
    letters = draw.integers(0, len(LETTERS), (count, LENGTH))
    return letters, np.pad(letters, ((0, 0), (DELAY, 0)))[:, :LENGTH]


class Echo(nn.Module):
    def __init__(self) -> None:
        self.embedding = nn.Embedding(len(LETTERS), 8)
        self.lstm = nn.LSTM(8, 24, batch_first=True)
        self.head = nn.Linear(24, len(LETTERS))

    def forward(self, letters: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(letters))
        logits: Tensor = self.head(states)
        return logits


def main(name: str) -> None:
    draw = np.random.default_rng(1)
    with ringup.device(name):
        ringup.manual_seed(3)
        model, criterion = Echo(), nn.CrossEntropyLoss()
        optimizer = optim.Adam(model.parameters(), lr=0.06)
        for step in range(12):
            # new ones in each step
            letters, wanted = texts(64, draw)
            logits = model(Tensor(letters))
            loss = criterion(logits.flatten(0, 1), Tensor(wanted).flatten())
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            given = logits.numpy().argmax(-1)
            right = (given == wanted).mean()
            if step % 3 == 2:
                print(f"step {step + 1}: loss {loss.item():.4f}, gradients {norm.item():.3f}, right: {right:.1%}")
        for row in range(3):
            print(*("".join(LETTERS[one] for one in kind[row]) for kind in (letters, given.tolist())), sep=" -> ")
        assert right > 0.9


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
