"""A small convolutional network learns four patterns in noise: batch norm, dropout, a schedule, weights in a file.

python examples/train_cnn.py virtual:navi31 weights.safetensors
"""

import sys

import numpy as np

import ringup
from ringup import Tensor, nn, optim

PATTERNS = ("rows", "columns", "checks", "rings")


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy pictures (count, 1, 12, 12) of the four patterns, and the pattern of each."""
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, len(PATTERNS), count)
    y, x = np.mgrid[:12, :12]
    clean = np.stack([y // 2, x // 2, y // 2 + x // 2, np.maximum(abs(2 * y - 11), abs(2 * x - 11)) // 4]) % 2
    noisy = clean[kinds, None] * 2.0 - 1 + draw.normal(0, 0.7, (count, 1, 12, 12))
    return noisy.astype(np.float32), kinds


class Classifier(nn.Module):
    def __init__(self) -> None:
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, len(PATTERNS)))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def accuracy(model: nn.Module, images: np.ndarray, kinds: np.ndarray) -> float:
    model.eval()
    with ringup.no_grad():
        return float((model(Tensor(images)).argmax(1) == Tensor(kinds)).float().mean())


def main(name: str, path: str) -> None:
    images, kinds = pictures(128, seed=1)
    unseen = pictures(64, seed=2)
    with ringup.device(name):
        ringup.manual_seed(3)
        model = Classifier()
        optimizer = optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
        scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
        for epoch in range(3):
            model.train()
            total = 0.0
            for batch in np.arange(len(images)).reshape(4, -1):
                loss = nn.functional.cross_entropy(model(Tensor(images[batch])), Tensor(kinds[batch]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            scheduler.step()
            print(f"epoch {epoch + 1}: loss {total / 4:.4f}, right: {accuracy(model, *unseen):.1%}")
        ringup.save_safetensors(model.state_dict(), path)

        trained = Classifier()
        trained.load_state_dict(ringup.load_safetensors(path))
        print(f"from the file: {accuracy(trained, *unseen):.1%}")
        assert accuracy(trained, *unseen) > 0.9


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
