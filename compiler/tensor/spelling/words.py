"""Parameters of tensor methods that PyTorch or NumPy call by another name, and what else their methods take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# parameter: the other words for it, in every method that has the parameter
WORDS: Mapping[str, str] = {
    "axis": "dim",
    "axes": "axis dim dims",
    "keepdims": "keepdim",
    "sizes": "size shape",
    "places": "index indices",
    "values": "src value",
    "source": "generator",
    "correction": "ddof",
    "order": "p ord norm_type",
    "kernel": "kernel_size",
    "ceil": "ceil_mode",
    "count_padding": "count_include_pad",
    "rate": "p lr",
    "wanted": "requires_grad",
    "seed": "gradient",
}

# method: word=parameter, for the words of one method; they come before those above
_BY_METHOD: Mapping[str, str] = {
    "full": "size=shape fill_value=value",
    "full_like": "fill_value=value",
    "new_full": "fill_value=value size=shape",
    "swapaxes": "axis1=first axis2=second",
    "swapdims": "dim0=first dim1=second",
    "arange": "end=stop",
    "linspace": "end=stop steps=count num=count",
    "logspace": "end=stop steps=count num=count",
    "tril_indices": "row=rows col=columns n=rows m=columns k=offset",
    "triu_indices": "row=rows col=columns n=rows m=columns k=offset",
    "eye": "n=rows N=rows m=columns M=columns",
    "randperm": "n=count x=count",
    "normal": "loc=mean scale=std",
    "kaiming_uniform": "a=slope",
    "kaiming_normal": "a=slope",
    "flatten": "start_dim=start end_dim=end",
    "transpose": "dim0=first dim1=second axis1=first axis2=second axes=first",
    "movedim": "destination=target",
    "roll": "shifts=shift dims=axis",
    "pad": "pad=widths padding=widths pad_width=widths constant_values=value",
    "split": "split_size=sizes split_size_or_sections=sizes",
    "chunk": "chunks=count",
    "repeat": "repeats=counts",
    "tile": "reps=counts dims=counts",
    "repeat_interleave": "repeats=count",
    "rot90": "k=count dims=axes",
    "tensor_split": "indices_or_sections=sections indices=sections",
    "clamp_min": "min=low",
    "clamp_max": "max=high",
    "pow": "exponent=other",
    "float_power": "exponent=other",
    "histc": "min=low max=high",
    "unfold": "dimension=axis",
    "diagonal": "dim1=first dim2=second axis1=first axis2=second",
    "one_hot": "num_classes=classes",
    "clip": "min=low max=high a_min=low a_max=high",
    "clamp": "min=low max=high a_min=low a_max=high",
    "where": "x=yes y=no input=yes other=no",
    "leaky_relu": "negative_slope=slope",
    "hardtanh": "min_val=low max_val=high",
    "hardshrink": "lambd=width",
    "softshrink": "lambd=width",
    "tril": "k=diagonal",
    "triu": "k=diagonal",
    "select": "index=place",
    "index_add": "source=source",
    "index_copy": "source=source",
    "index_put": "indices=places",
    "diag": "diagonal=offset k=offset",
    "diagflat": "offset=offset k=offset",
    "diag_embed": "dim1=first dim2=second",
    "layer_norm": "normalized_shape=given",
    "rms_norm": "normalized_shape=given",
    "isin": "test_elements=elements",
    "searchsorted": "v=values input=values",
    "multinomial": "num_samples=count",
    "quantile": "method=interpolation",
    "percentile": "method=interpolation",
    "nanquantile": "method=interpolation",
    "cosine_similarity": "x2=other",
    "cdist": "x2=other",
    "mm": "mat2=other",
    "bmm": "mat2=other",
    "mv": "vec=other",
    "addmm": "mat1=first mat2=second",
    "addmv": "mat=first vec=second",
    "baddbmm": "batch1=first batch2=second",
    "addr": "vec1=first vec2=second",
    "addbmm": "batch1=first batch2=second",
    "hsplit": "indices_or_sections=sections indices=sections",
    "vsplit": "indices_or_sections=sections indices=sections",
    "dsplit": "indices_or_sections=sections indices=sections",
    "split_with_sizes": "split_sizes=sizes",
    "select_scatter": "index=place",
    "diagonal_scatter": "dim1=first dim2=second",
    "index_reduce": "source=source",
    "put": "source=values",
    "as_strided": "stride=steps storage_offset=offset",
    "random_": "from=low to=high",
    "addcmul": "tensor1=first tensor2=second",
    "addcdiv": "tensor1=first tensor2=second",
    "var_mean": "unbiased=correction",
    "std_mean": "unbiased=correction",
    "var": "unbiased=correction",
    "std": "unbiased=correction",
    "round": "ndigits=decimals",
    "tensordot": "dims=axes b=other",
    "einsum": "equation=formula subscripts=formula",
    "interpolate": "size=sizes",
    "group_norm": "num_groups=groups",
    "batch_norm": "running_mean=mean running_var=variance",
    "scaled_dot_product_attention": "attn_mask=mask is_causal=causal enable_gqa=grouped",
    "dropout": "train=training",
    "cross_entropy": "ignore_index=ignore label_smoothing=smoothing",
    "nll_loss": "ignore_index=ignore",
    "threshold": "threshold=limit",
    "pixel_shuffle": "upscale_factor=factor",
    "pixel_unshuffle": "downscale_factor=factor",
}

# Parameters in the order in which PyTorch takes them by position, where here some have to be named.
_POSITIONS: Mapping[str, str] = {
    "nanmax nanmin nansum nanmean sum prod mean any all amax amin argmax argmin logsumexp": "axis keepdims",
    "norm": "order axis keepdims",
    "quantile": "q axis keepdims",
    "var std var_mean std_mean": "axis correction keepdims",
    "unique": "sorted return_inverse return_counts axis",
    "put index_put": "places values accumulate",
    "sort argsort": "axis descending",
    "topk": "k axis largest sorted",
    "kthvalue": "k axis keepdims",
    "mode": "axis keepdims",
    "nanquantile": "q axis keepdims",
    "dropout": "rate training",
    "group_norm": "groups weight bias eps",
    "instance_norm": "weight bias eps",
    "conv conv1d conv2d conv3d": "weight bias stride padding dilation groups",
    "conv_transpose conv_transpose1d conv_transpose2d conv_transpose3d": (
        "weight bias stride padding output_padding groups dilation"
    ),
    "avg_pool avg_pool1d avg_pool2d avg_pool3d": "kernel stride padding ceil count_padding",
    "max_pool max_pool1d max_pool2d max_pool3d": "kernel stride padding dilation ceil return_indices",
    "lp_pool": "order kernel stride ceil",
}

# Words that ask for what is done anyway, with the values that ask for no more than that.
_WITHOUT_EFFECT: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "sort argsort": {"stable": (True, False, None), "kind": ("stable", "quicksort", None)},
    "topk": {"sorted": (True, False)},
    "unique": {"sorted": (True, False)},
    "scaled_dot_product_attention": {"dropout_p": (0,)},
    "relu relu6 leaky_relu elu selu celu silu mish hardtanh hardswish hardsigmoid dropout": {"inplace": (False,)},
}

# methods that are called with a list of tensors, as functions of the class
_JOINERS = "cat concat concatenate stack vstack row_stack hstack dstack column_stack einsum block_diag cartesian_prod"
JOINERS = frozenset(_JOINERS.split())
# methods that are called with a list of tensors too, and with numbers as others are
OF_LISTS = frozenset(("atleast_1d", "atleast_2d", "atleast_3d"))

# methods that take a type that their elements are cast to before anything else
IN_TYPE = frozenset(("mean", "nanmean", "nansum", "var", "std", "norm", "softmax", "log_softmax"))

# methods that make a tensor: they take `requires_grad` and `device` besides their own parameters
_MAKERS = (
    "full zeros ones empty arange linspace logspace eye tril_indices triu_indices rand uniform randn normal "
    "randint randperm permutation kaiming_uniform kaiming_normal xavier_uniform xavier_normal full_like "
    "zeros_like ones_like empty_like rand_like randn_like randint_like new_full new_zeros new_ones new_empty "
    "new_tensor"
)
MAKERS = frozenset(_MAKERS.split())


def _one_by_one(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table whose rows are for several methods with a row for each."""
    return {method: row for methods, row in table.items() for method in methods.split()}


BY_METHOD = {method: dict(pair.split("=") for pair in row.split()) for method, row in _BY_METHOD.items()}
POSITIONS = {method: row.split() for method, row in _one_by_one(_POSITIONS).items()}
WITHOUT_EFFECT: Mapping[str, Mapping[str, tuple[Any, ...]]] = _one_by_one(_WITHOUT_EFFECT)


def words_of(method: str, parameters: tuple[str, ...]) -> dict[str, str]:
    """Return the other words that a method understands, each with its parameter."""
    found = {word: one for one in parameters if one in WORDS for word in WORDS[one].split()} | BY_METHOD.get(method, {})
    return {word: one for word, one in found.items() if one in parameters and word not in parameters}
