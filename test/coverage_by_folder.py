"""What `make coverage` prints: the share of lines that the suite runs, for each folder and in total."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    data = Coverage(data_file=str(ROOT / ".coverage"), config_file=str(ROOT / "pyproject.toml"))
    data.load()
    lines, missing = Counter(), Counter()
    for name in data.get_data().measured_files():
        path = Path(name)
        if not path.is_relative_to(ROOT) or not path.exists():
            continue
        _, statements, _, missed, _ = data.analysis2(name)
        for folder in (path.relative_to(ROOT).parts[0], "all"):
            lines[folder] += len(statements)
            missing[folder] += len(missed)
    for folder in (*sorted(set(lines) - {"all"}), "all"):
        print(f"{folder:14} {lines[folder]:7} lines  {1 - missing[folder] / max(lines[folder], 1):7.1%} run")


if __name__ == "__main__":
    main()
