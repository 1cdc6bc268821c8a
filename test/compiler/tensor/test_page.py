"""The page of tensors lists the methods that there are."""

from pathlib import Path

from ringup.compiler.tensor import Tensor

PAGE = Path(__file__).parents[3] / "docs" / "tensors.md"
WIDTH = 120
TOPICS = {
    "creation": "making tensors",
    "random": "making tensors",
    "tensor": "values, gradients, memory",
    "history": "values, gradients, memory",
    "core": "values, gradients, memory",
    "memory": "values, gradients, memory",
    "conversions": "types",
    "familiar": "other words of PyTorch and NumPy",
    "movement": "shapes, axes, edges",
    "rearranged": "shapes, axes, edges",
    "joining": "several tensors",
    "indexing": "elements by place",
    "parts": "elements by place",
    "sets": "sets, counts, draws",
    "elementwise": "arithmetic, comparison, choice, rounding",
    "complex_numbers.parts": "complex numbers",
    "elements": "arithmetic, comparison, choice, rounding",
    "functions": "functions",
    "special": "functions",
    "activations": "activations",
    "reductions": "sums, extremes, statistics",
    "extremes": "sums, extremes, statistics",
    "statistics": "sums, extremes, statistics",
    "sorting": "order, running sums",
    "collected": "medians without NaN, histograms, areas, grids, blocks",
    "numerics": "parts of floats, areas, determinants",
    "portions": "pieces, parts put back",
    "linear": "products",
    "matrices": "products",
    "convolution": "convolution, pooling, resampling",
    "pooling": "convolution, pooling, resampling",
    "resampling": "convolution, pooling, resampling",
    "networks": "norms, attention, losses",
    "layers": "norms, attention, losses",
    "losses": "norms, attention, losses",
}


def listed():
    """Return the lines of the list."""
    methods = {}
    for name, value in vars(Tensor).items():
        if name.startswith("_") or name.endswith("_"):
            continue
        function = getattr(value, "__func__", getattr(value, "fget", value))
        module = getattr(function, "__wrapped__", function).__module__
        module = module.removeprefix("ringup.compiler.tensor.").removeprefix("composed.")
        methods.setdefault(TOPICS.get(module, module), []).append(f"`{name}`")
    for topic in dict.fromkeys(TOPICS.values()):
        line = f"- **{topic}**: "
        words = sorted(methods.pop(topic))
        for i, word in enumerate(words):
            part = word + (", " if i + 1 < len(words) else "")
            if len((line + part).rstrip()) > WIDTH:
                yield line.rstrip()
                line = "  "
            line += part
        yield line
    assert not methods, f"methods of no topic: {methods}"


def test_the_page_lists_every_method():
    text = "\n".join(listed())
    assert text in PAGE.read_text(), f"put this below the heading Operations of {PAGE.name}:\n{text}"
