"""`Tensor`: a lazy array of numbers with NumPy's manners. Everything is a graph until `realize`, `numpy`, `item` or
`tolist` asks for bytes. Most of its methods are functions of the modules below, one module for each topic.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.tensor import (
    activations,
    conversions,
    convolution,
    creation,
    elementwise,
    familiar,
    functions,
    history,
    indexing,
    layers,
    linear,
    memory,
    movement,
    realize,
    reductions,
    sorting,
)
from ringup.compiler.tensor.arrays import Array, as_array, handed_memory, memory_of, numpy_dtype
from ringup.compiler.tensor.complex_numbers import parts as of_parts
from ringup.compiler.tensor.composed import (
    collected,
    elements,
    extremes,
    joining,
    losses,
    matrices,
    networks,
    numerics,
    parts,
    pooling,
    portions,
    reading,
    rearranged,
    resampling,
    sets,
    special,
    statistics,
)
from ringup.compiler.tensor.core import Core, DTypeLike, as_dtype
from ringup.compiler.tensor.gradients import backward
from ringup.compiler.tensor.spelling.binding import spelled


@spelled
@familiar.with_in_place
class Tensor(Core):
    """A lazy tensor from numbers, nested lists, NumPy arrays (whose bytes are copied) or DLPack objects.

    Python integers make int32 (int64 where they need it), floats f32, complex numbers complex64, arrays keep their
    type; `dtype` converts. With `requires_grad`, `backward` gives it a `grad`. Its memory is at home on `device`, an
    open card, where given.
    """

    __slots__ = ()

    def __init__(
        self,
        data: object,
        dtype: DTypeLike | None = None,
        *,
        device: Any = None,
        requires_grad: bool = False,
        name: str = "",
    ) -> None:
        kind = None if dtype is None else as_dtype(dtype)
        if isinstance(data, Core):
            self._setup(nodes.cast(data.node, kind or data.dtype))
        elif isinstance(data, (bool, int, float, complex)) and not isinstance(data, np.generic):
            kind = kind or dtypes.of_scalar(data)
            self._setup(nodes.const(dtypes.fitting(data, kind), kind))
        else:
            self._setup(memory_of(as_array(data, kind), name), owns=True)
            if kind is not None and kind is not self.dtype:
                self._node, self._owns = nodes.cast(self._node, kind), False
        if device is not None and (moved := self.to(device)) is not self:
            self._setup(moved._node, owns=moved._owns)
        if requires_grad:
            self.requires_grad_()

    # as text and as Python's numbers

    def __repr__(self) -> str:
        return reading.represented(self)

    def __str__(self) -> str:
        return reading.as_text(self)

    def __format__(self, spec: str) -> str:
        return format(reading.number(self, "a format of"), spec) if spec else str(self)

    def __float__(self) -> float:
        return float(reading.number(self, "float() of"))

    def __int__(self) -> int:
        return int(reading.number(self, "int() of"))

    def __bool__(self) -> bool:
        return bool(reading.number(self, "the truth of", "any() or all()"))

    def __complex__(self) -> builtins.complex:
        return builtins.complex(reading.number(self, "complex() of"))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeError(f"a tensor of {self.dtype} is no whole number: only integer tensors of one element are")
        return int(reading.number(self, "a whole number of"))

    def __round__(self, places: int = 0) -> Tensor:
        return self.round(places)

    def __contains__(self, value: object) -> bool:
        return bool(self.eq(value).any())

    @property
    def name(self) -> str:
        """Return what its memory is called in messages, empty for a value that has none."""
        arg = self._node.arg
        return arg.name if isinstance(arg, nodes.Storage) else ""

    @property
    def T(self) -> Tensor:
        """Return it with the order of its axes reversed."""
        return self.permute(tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        """Return it with its last two axes swapped."""
        return self.transpose(-2, -1)

    @property
    def H(self) -> Tensor:
        """Return a matrix with its axes swapped and its elements conjugated."""
        if self.ndim != 2:
            raise ValueError(f"H of {list(self.shape)}: a matrix has two axes; mH takes stacks of matrices")
        return self.mH

    @property
    def mH(self) -> Tensor:
        """Return it with its last two axes swapped and its elements conjugated."""
        return self.mT.conj()

    @property
    def real(self) -> Tensor:
        """Return the real parts, real tensors as they are; assigned to, they are replaced in place."""
        return of_parts.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real.assign(value)

    @property
    def imag(self) -> Tensor:
        """Return the imaginary parts, zeros of real tensors; assigned to, they are replaced in place."""
        return of_parts.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag.assign(value)

    @property
    def itemsize(self) -> int:
        """Return the bytes of one element."""
        return self.dtype.size_bytes

    @property
    def nbytes(self) -> index.Int:
        """Return the bytes of all elements."""
        return self.numel() * self.dtype.size_bytes

    @property
    def data(self) -> Tensor:
        """Return the same elements, which no gradient passes; assigned to, they are replaced in place."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self.assign(value)

    @property
    def is_leaf(self) -> bool:
        """Return whether `backward` gives it a gradient of its own, or none passes it."""
        return self.requires_grad or realize.is_data(self._node)

    @property
    def is_cuda(self) -> bool:
        """Return False: no CUDA library holds its bytes, whatever card computes it."""
        return False

    @property
    def device(self) -> Any:
        """Return what would compute it now, None where nothing was chosen."""
        return familiar.place_of(self)

    # to bytes and back

    def realize(self, *others: Core, sizes: dict[str, int] | None = None) -> Tensor:
        """Compute it, and others together with it; `sizes` binds symbolic sizes by name. The tensor holds its bytes
        afterwards.
        """
        realize.realize([self, *others], sizes or {})
        return self

    def numpy(self, **sizes: int) -> Array:
        """Return a NumPy array of its own; `numpy(n=17)` binds symbolic sizes. bf16 and float8 need the ml_dtypes
        package.
        """
        kind = numpy_dtype(self.dtype)
        data, shape = reading.data(self, sizes)
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(data, kind, count).reshape(shape).copy() if count else np.zeros(shape, kind)

    def tolist(self, **sizes: int) -> Any:
        """Return nested lists of Python numbers, or one number."""
        return reading.plain(self).numpy(**sizes).tolist()

    def item(self, *place: int, **sizes: int) -> Any:
        """Return its only element as a Python number, or the one at a place, NumPy's, among all or along each axis."""
        if place:
            return (self[place] if len(place) > 1 else self.flatten()[place[0]]).item(**sizes)
        if self.numel() != 1:
            raise ValueError(f"item of a tensor of shape {list(self.shape)}: it has to hold one element")
        return reading.plain(self).numpy(**sizes).reshape(()).item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a tensor's bytes lie on the card: an array of them is a copy")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return reading.dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        # kDLCPU of dlpack.h: what is handed out is a copy on the host
        return (1, 0)

    def __buffer__(self, flags: int) -> memoryview:
        return reading.buffer(self, flags)

    def __release_buffer__(self, view: memoryview) -> None:
        # NumPy keeps a view as long as an array of it only where this method is
        view.release()

    @classmethod
    def from_dlpack(cls, source: Any) -> Tensor:
        """Return a tensor of the bytes of a DLPack object or capsule on the host, copied."""
        made = cls._of(handed_memory(source))
        made._owns = True
        return made

    # gradients

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        """Make `backward` give it a gradient, or no longer. A tensor that wants one gets memory of its own."""
        if wanted and not self.dtype.is_inexact:
            raise TypeError(f"a gradient by a tensor of {self.dtype}: only floats and complex numbers have one")
        self._wants_gradient = wanted
        if wanted:
            self._view = None
            memory.adopt(self)
            history.LEAVES[id(self)] = self
        else:
            history.LEAVES.pop(id(self), None)
        return self

    def backward(self, seed: Tensor | None = None) -> Tensor:
        """Add this loss's gradients to `grad` of the tensors that asked for them; `seed` is the gradient of the loss
        unless it is one number.
        """
        backward(self, seed)
        return self

    def clone(self) -> Tensor:
        """Return the same value as another tensor: an assignment to one does not change the other, and a gradient by
        one is not the other's.
        """
        return self._of(nodes.alias(self._node))

    copy = clone

    def __copy__(self) -> Tensor:
        return self.clone()

    def __deepcopy__(self, known: dict[int, Any]) -> Tensor:
        made = known[id(self)] = self.detach().clone()
        return made.requires_grad_() if self.requires_grad else made

    # constants, ranges, random numbers, initial weights
    full = classmethod(creation.full)
    zeros = classmethod(creation.zeros)
    ones = classmethod(creation.ones)
    empty = classmethod(creation.empty)
    full_like = creation.full_like
    empty_like = familiar.empty_like
    rand_like = familiar.rand_like
    randn_like = familiar.randn_like
    randint_like = familiar.randint_like
    new_full = familiar.new_full
    new_zeros = familiar.new_zeros
    new_ones = familiar.new_ones
    new_empty = familiar.new_empty
    new_tensor = familiar.new_tensor
    zeros_like = creation.zeros_like
    ones_like = creation.ones_like
    arange = classmethod(creation.arange)
    linspace = classmethod(creation.linspace)
    logspace = classmethod(collected.logspace)
    tril_indices = classmethod(collected.tril_indices)
    triu_indices = classmethod(collected.triu_indices)
    eye = classmethod(creation.eye)
    rand = classmethod(creation.rand)
    uniform = classmethod(creation.uniform)
    randn = classmethod(creation.randn)
    normal = classmethod(creation.normal)
    randint = classmethod(creation.randint)
    randperm = permutation = classmethod(creation.randperm)
    bernoulli = creation.bernoulli
    kaiming_uniform = classmethod(creation.kaiming_uniform)
    kaiming_normal = classmethod(creation.kaiming_normal)
    xavier_uniform = classmethod(creation.xavier_uniform)
    xavier_normal = classmethod(creation.xavier_normal)

    # shapes, axes, edges, parts
    reshape = movement.reshape
    view = familiar.view
    ravel = familiar.ravel
    t = familiar.t
    swapaxes = swapdims = familiar.swapaxes
    dim = ndimension = familiar.dim
    view_as = reshape_as = movement.view_as
    flatten = movement.flatten
    unflatten = movement.unflatten
    squeeze = elements.squeeze
    unsqueeze = expand_dims = movement.unsqueeze
    permute = movement.permute
    transpose = elements.transpose
    movedim = moveaxis = movement.movedim
    broadcast_to = expand = movement.expand
    expand_as = movement.expand_as
    shrink = movement.shrink
    flip = elements.flip
    fliplr = elements.fliplr
    flipud = elements.flipud
    rot90 = elements.rot90
    pad = joining.pad
    cat = concat = concatenate = joining.cat
    stack = joining.stack
    vstack = row_stack = joining.vstack
    hstack = joining.hstack
    dstack = joining.dstack
    column_stack = joining.column_stack
    block_diag = collected.block_diag
    cartesian_prod = collected.cartesian_prod
    atleast_1d = collected.atleast_1d
    atleast_2d = collected.atleast_2d
    atleast_3d = collected.atleast_3d
    split = movement.split
    chunk = movement.chunk
    repeat = elements.repeat
    tile = movement.tile
    repeat_interleave = elements.repeat_interleave
    tensor_split = array_split = elements.tensor_split
    hsplit = portions.hsplit
    vsplit = portions.vsplit
    dsplit = portions.dsplit
    split_with_sizes = portions.split_with_sizes
    stride = elements.stride
    as_strided = portions.as_strided
    sum_to_size = portions.sum_to_size
    combinations = portions.combinations
    roll = movement.roll
    unfold = movement.unfold
    diagonal = movement.diagonal

    # elements by place
    __getitem__ = indexing.getitem
    __iter__ = indexing.iterate
    gather = indexing.gather
    take_along_axis = take_along_dim = indexing.take_along_axis
    take = indexing.take
    index_select = indexing.index_select
    scatter = parts.scatter
    scatter_add = indexing.scatter_add
    scatter_reduce = parts.scatter_reduce
    index_add = parts.index_add
    index_copy = parts.index_copy
    index_fill = parts.index_fill
    index_put = parts.index_put
    index_reduce = portions.index_reduce
    put = portions.put
    select_scatter = portions.select_scatter
    slice_scatter = portions.slice_scatter
    diagonal_scatter = portions.diagonal_scatter
    masked_select = parts.masked_select
    nonzero = parts.nonzero
    argwhere = parts.argwhere
    bincount = sets.bincount
    unique = sets.unique
    unique_consecutive = portions.unique_consecutive
    isin = sets.isin
    searchsorted = sets.searchsorted
    bucketize = sets.bucketize
    multinomial = sets.multinomial
    unbind = parts.unbind
    select = parts.select
    narrow = parts.narrow
    one_hot = indexing.one_hot

    # arithmetic
    __add__ = elementwise.add
    add = familiar.add
    __radd__ = elementwise.reverse_add
    __sub__ = subtract = elementwise.sub
    sub = familiar.sub
    rsub = numerics.rsub
    ldexp = numerics.ldexp
    frexp = numerics.frexp
    nextafter = numerics.nextafter
    __rsub__ = elementwise.reverse_sub
    __mul__ = mul = multiply = elementwise.mul
    __rmul__ = elementwise.reverse_mul
    __truediv__ = true_divide = elementwise.div
    div = divide = familiar.div
    __rtruediv__ = elementwise.reverse_div
    __floordiv__ = floordiv = floor_divide = elementwise.floordiv
    __rfloordiv__ = elementwise.reverse_floordiv
    __mod__ = mod = remainder = elementwise.mod
    __rmod__ = elementwise.reverse_mod
    fmod = elementwise.fmod
    __pow__ = pow = power = elementwise.power
    __rpow__ = elementwise.reverse_power
    __neg__ = neg = negative = elementwise.neg
    __pos__ = positive = elementwise.pos
    __abs__ = abs = absolute = elementwise.absolute
    lerp = elementwise.lerp
    square = elementwise.square

    # bits
    __invert__ = invert = bitwise_not = elementwise.invert
    __and__ = bitwise_and = elementwise.bits_and
    __rand__ = elementwise.reverse_bits_and
    __or__ = bitwise_or = elementwise.bits_or
    __ror__ = elementwise.reverse_bits_or
    __xor__ = bitwise_xor = elementwise.bits_xor
    __rxor__ = elementwise.reverse_bits_xor
    __lshift__ = left_shift = bitwise_left_shift = elementwise.shift_left
    __rlshift__ = elementwise.reverse_shift_left
    __rshift__ = right_shift = bitwise_right_shift = elementwise.shift_right
    __rrshift__ = elementwise.reverse_shift_right

    # comparison and choice
    __lt__ = lt = less = elementwise.less
    __gt__ = gt = greater = elementwise.greater
    __le__ = le = less_equal = elementwise.less_equal
    __ge__ = ge = greater_equal = elementwise.greater_equal
    __eq__ = elementwise.equals  # type: ignore[assignment]
    __ne__ = elementwise.differs  # type: ignore[assignment]
    eq = elementwise.eq
    ne = not_equal = elementwise.ne
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    clamp = clip = elementwise.clip
    where = joining.where
    masked_fill = elementwise.masked_fill
    masked_scatter = elements.masked_scatter
    fill_diagonal_ = elements.fill_diagonal_in_place
    clamp_min = elements.clamp_min
    clamp_max = elements.clamp_max
    fmax = elements.fmax
    fmin = elements.fmin
    heaviside = elements.heaviside

    # a class that defines __eq__ loses its __hash__ unless it names it
    __hash__ = Core.__hash__

    # predicates, rounding, signs
    isnan = elementwise.isnan
    isinf = elementwise.isinf
    isposinf = elements.isposinf
    isneginf = elements.isneginf
    isfinite = elementwise.isfinite
    signbit = elementwise.signbit
    logical_not = elementwise.logical_not
    logical_and = elementwise.logical_and
    logical_or = elementwise.logical_or
    logical_xor = elementwise.logical_xor
    floor = elementwise.floor
    ceil = elementwise.ceil
    trunc = fix = elementwise.trunc
    round = rint = elementwise.round_to
    frac = elements.frac
    sign = sgn = elementwise.sign
    copysign = elementwise.copysign

    # complex numbers
    complex = of_parts.complex_of
    polar = of_parts.polar
    conj = conjugate = conj_physical = of_parts.conj
    adjoint = matrices.adjoint
    angle = of_parts.angle
    view_as_real = of_parts.as_real
    view_as_complex = of_parts.as_complex
    is_complex = of_parts.is_complex
    isreal = of_parts.isreal
    vecdot = matrices.vecdot

    # mathematical functions
    sqrt = functions.sqrt
    rsqrt = functions.rsqrt
    reciprocal = functions.reciprocal
    cbrt = functions.cbrt
    exp2 = functions.exp2
    log2 = functions.log2
    exp = functions.exp
    expm1 = functions.expm1
    log = functions.log
    log10 = functions.log10
    log1p = functions.log1p
    logaddexp = functions.logaddexp
    logaddexp2 = elements.logaddexp2
    xlogy = elements.xlogy
    logit = elements.logit
    sinc = elements.sinc
    float_power = elements.float_power
    deg2rad = radians = elements.deg2rad
    rad2deg = degrees = elements.rad2deg
    sin = functions.sin
    cos = functions.cos
    tan = functions.tan
    atan = arctan = functions.atan
    atan2 = arctan2 = functions.atan2
    asin = arcsin = functions.asin
    acos = arccos = functions.acos
    sinh = functions.sinh
    cosh = functions.cosh
    tanh = functions.tanh
    asinh = arcsinh = functions.asinh
    acosh = arccosh = functions.acosh
    atanh = arctanh = functions.atanh
    erf = functions.erf
    erfc = functions.erfc
    lgamma = special.lgamma
    digamma = special.digamma
    mvlgamma = numerics.mvlgamma
    erfinv = special.erfinv
    i0 = special.i0
    gcd = special.gcd
    lcm = special.lcm

    # activation functions
    relu = activations.relu
    relu6 = activations.relu6
    leaky_relu = activations.leaky_relu
    prelu = elements.prelu
    elu = activations.elu
    celu = activations.celu
    selu = activations.selu
    sigmoid = activations.sigmoid
    logsigmoid = activations.logsigmoid
    hardsigmoid = activations.hardsigmoid
    hardtanh = activations.hardtanh
    swish = silu = activations.silu
    hardswish = activations.hardswish
    softplus = activations.softplus
    softsign = activations.softsign
    mish = activations.mish
    gelu = activations.gelu
    quick_gelu = activations.quick_gelu
    tanhshrink = activations.tanhshrink
    hardshrink = activations.hardshrink
    softshrink = activations.softshrink
    softmin = elements.softmin
    glu = elements.glu
    threshold = elements.threshold

    # sums, extremes, statistics, softmax, triangles
    sum = reductions.sum_along
    prod = reductions.prod
    max = extremes.maximum
    min = extremes.minimum
    amax = reductions.amax
    amin = reductions.amin
    aminmax = extremes.aminmax
    ptp = extremes.ptp
    any = reductions.any_along
    all = reductions.all_along
    count_nonzero = reductions.count_nonzero
    argmax = reductions.argmax
    argmin = reductions.argmin
    mean = reductions.mean
    var = reductions.var
    std = reductions.std
    norm = reductions.norm
    softmax = reductions.softmax
    log_softmax = reductions.log_softmax
    logsumexp = reductions.logsumexp
    tril = reductions.tril
    triu = reductions.triu
    trace = reductions.trace
    allclose = statistics.allclose
    isclose = statistics.isclose
    equal = array_equal = statistics.equal
    var_mean = statistics.var_mean
    std_mean = statistics.std_mean
    nansum = statistics.nansum
    nanmean = statistics.nanmean
    nan_to_num = statistics.nan_to_num
    quantile = statistics.quantile
    nanquantile = collected.nanquantile
    histogram = collected.histogram
    trapezoid = trapz = collected.trapezoid
    cumulative_trapezoid = numerics.cumulative_trapezoid
    renorm = numerics.renorm
    normalize = statistics.normalize
    cosine_similarity = statistics.cosine_similarity
    cdist = statistics.cdist
    dist = statistics.dist
    hypot = statistics.hypot
    nanmax = elements.nanmax
    nanmin = elements.nanmin
    percentile = elements.percentile
    cross = elements.cross
    cov = elements.cov
    corrcoef = elements.corrcoef
    histc = elements.histc

    # running sums and order
    cumsum = sorting.cumsum
    cumprod = sorting.cumprod
    cummax = extremes.cummax
    cummin = extremes.cummin
    logcumsumexp = sorting.logcumsumexp
    diff = elements.diff
    argsort = sorting.argsort
    sort = extremes.sort
    msort = numerics.msort
    topk = extremes.topk
    kthvalue = extremes.kthvalue
    median = extremes.median
    mode = collected.mode
    nanmedian = collected.nanmedian

    # matrix products
    __matmul__ = matmul = linear.matmul
    __rmatmul__ = linear.reverse_matmul
    dot = linear.dot
    tensordot = linear.tensordot
    mm = matrices.mm
    bmm = matrices.bmm
    mv = matrices.mv
    addmm = matrices.addmm
    addmv = matrices.addmv
    addr = numerics.addr
    addbmm = numerics.addbmm
    det = numerics.det
    logdet = numerics.logdet
    slogdet = numerics.slogdet
    inverse = numerics.inverse
    pinverse = numerics.pinverse
    matrix_power = numerics.matrix_power
    matrix_exp = numerics.matrix_exp
    baddbmm = matrices.baddbmm
    addcmul = matrices.addcmul
    addcdiv = matrices.addcdiv
    vdot = matrices.vdot
    kron = matrices.kron
    diag = matrices.diag
    diagflat = matrices.diagflat
    diag_embed = matrices.diag_embed
    outer = ger = linear.outer
    inner = linear.inner
    einsum = joining.einsum
    rearrange = rearranged.rearrange
    linear = linear.linear

    # convolutions, pooling, resampling
    conv = convolution.conv
    conv1d = convolution.conv1d
    conv2d = convolution.conv2d
    conv3d = convolution.conv3d
    conv_transpose1d = conv_transpose2d = conv_transpose3d = conv_transpose = convolution.conv_transpose
    max_pool2d = max_pool = pooling.max_pool
    max_pool1d = pooling.max_pool1d
    max_pool3d = pooling.max_pool3d
    max_unpool2d = max_unpool = pooling.max_unpool
    max_unpool1d = pooling.max_unpool1d
    max_unpool3d = pooling.max_unpool3d
    avg_pool2d = avg_pool = convolution.avg_pool
    avg_pool1d = pooling.avg_pool1d
    avg_pool3d = pooling.avg_pool3d
    adaptive_avg_pool1d = pooling.adaptive_avg_pool1d
    adaptive_avg_pool2d = pooling.adaptive_avg_pool2d
    adaptive_avg_pool3d = pooling.adaptive_avg_pool3d
    adaptive_max_pool1d = pooling.adaptive_max_pool1d
    adaptive_max_pool2d = pooling.adaptive_max_pool2d
    adaptive_max_pool3d = pooling.adaptive_max_pool3d
    lp_pool = convolution.lp_pool
    interpolate = resampling.interpolate
    pixel_shuffle = resampling.pixel_shuffle
    pixel_unshuffle = resampling.pixel_unshuffle

    # normalisation, attention, embedding, dropout, losses
    layer_norm = networks.layer_norm
    rms_norm = networks.rms_norm
    group_norm = layers.group_norm
    instance_norm = layers.instance_norm
    batch_norm = layers.batch_norm
    scaled_dot_product_attention = layers.scaled_dot_product_attention
    rotary = layers.rotary
    embedding = layers.embedding
    dropout = layers.dropout
    cross_entropy = losses.cross_entropy
    nll_loss = losses.nll_loss
    mse_loss = layers.mse_loss
    l1_loss = layers.l1_loss
    huber_loss = layers.huber_loss
    smooth_l1_loss = losses.smooth_l1_loss
    bce_loss = losses.bce_loss
    bce_with_logits_loss = losses.bce_with_logits_loss
    kl_div = layers.kl_div

    # assignment
    assign = memory.assign
    __setitem__ = memory.setitem
    __iadd__ = memory.add_in_place
    __isub__ = memory.sub_in_place
    __imul__ = memory.mul_in_place
    __itruediv__ = memory.div_in_place
    __ifloordiv__ = memory.floordiv_in_place
    __imod__ = memory.mod_in_place
    __ipow__ = memory.power_in_place
    __iand__ = memory.bits_and_in_place
    __ior__ = memory.bits_or_in_place
    __ixor__ = memory.bits_xor_in_place
    __ilshift__ = memory.shift_left_in_place
    __irshift__ = memory.shift_right_in_place

    fill_ = familiar.fill_in_place
    zero_ = familiar.zero_in_place
    copy_ = familiar.copy_in_place
    uniform_ = familiar.uniform_in_place
    normal_ = familiar.normal_in_place
    exponential_ = numerics.exponential_in_place
    geometric_ = numerics.geometric_in_place
    cauchy_ = numerics.cauchy_in_place
    log_normal_ = numerics.log_normal_in_place
    bernoulli_ = numerics.bernoulli_in_place
    random_ = numerics.random_in_place

    # conversions; they stand last because `bool`, `float` and `int` mean Python's types above
    cast = conversions.cast
    astype = conversions.astype
    bitcast = conversions.bitcast
    type = familiar.as_type
    type_as = familiar.type_as
    double = familiar.to_double
    cfloat = familiar.to_cfloat
    cdouble = familiar.to_cdouble
    bfloat16 = familiar.to_bfloat16
    short = familiar.to_short
    char = familiar.to_char
    byte = familiar.to_byte
    to = familiar.to
    cpu = familiar.cpu
    to_device = familiar.to_device
    __array_namespace__ = familiar.array_namespace
    element_size = familiar.element_size
    nelement = Core.numel
    is_floating_point = familiar.is_floating_point
    is_contiguous = familiar.is_contiguous
    detach = conversions.detach
    contiguous = conversions.contiguous
    half = conversions.to_half
    long = conversions.to_long
    bool = conversions.to_bool
    float = conversions.to_float
    int = conversions.to_int
