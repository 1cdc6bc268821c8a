"""A perceptron learns to tell three spiral arms apart: layers, an optimiser with a schedule, weights in a file.

python examples/train_mlp.py virtual:navi31 weights.safetensors
"""

import sys

import numpy as np

import ringup
from ringup import Tensor, nn, optim


def spirals(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points (3 count, 2) on three arms, and the arm of each."""
    draw = np.random.default_rng(1)
    along, arm = np.tile(np.linspace(0.1, 1, count), 3), np.repeat(np.arange(3), count)
    turned = 2.5 * along + arm * 2 * np.pi / 3 + draw.normal(0, 0.1, 3 * count)
    points = np.stack([along * np.cos(turned), along * np.sin(turned)], 1)
    return points.astype(np.float32), arm.astype(np.int64)


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def main(name: str, path: str) -> None:
    points, arms = spirals(64)
    order = np.random.default_rng(2)
    with ringup.device(name):
        ringup.manual_seed(3)
        model, criterion = make(), nn.CrossEntropyLoss()
        print(model)
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.03, total_steps=60)
        for epoch in range(20):
            total = 0.0
            for batch in order.permutation(len(points)).reshape(3, -1):
                loss = criterion(model(Tensor(points[batch])), Tensor(arms[batch]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                total += loss.item()
            if epoch % 5 == 4:
                print(f"epoch {epoch + 1}: loss {total / 3:.4f}, lr {scheduler.get_last_lr()[0]:.5f}")
        ringup.save_safetensors(model.state_dict(), path)

        trained = make().eval()
        trained.load_state_dict(ringup.load_safetensors(path))
        with ringup.no_grad():
            right = trained(Tensor(points)).argmax(1).numpy() == arms
        print(f"right: {right.mean():.1%}")
        assert right.mean() > 0.9


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
