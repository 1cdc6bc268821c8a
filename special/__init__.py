"""Special functions with the names of `torch.special`: `from ringup import special`."""

from ringup.compiler.tensor.tensor import Tensor
from ringup.special.functions import entr as entr
from ringup.special.functions import erfcx as erfcx
from ringup.special.functions import i0e as i0e
from ringup.special.functions import i1 as i1
from ringup.special.functions import i1e as i1e
from ringup.special.functions import log_ndtr as log_ndtr
from ringup.special.functions import ndtr as ndtr
from ringup.special.functions import ndtri as ndtri
from ringup.special.functions import polygamma as polygamma
from ringup.special.functions import xlog1py as xlog1py
from ringup.special.functions import zeta as zeta

digamma = psi = Tensor.digamma
erf, erfc, erfinv = Tensor.erf, Tensor.erfc, Tensor.erfinv
exp2, expm1, log1p = Tensor.exp2, Tensor.expm1, Tensor.log1p
expit, logit = Tensor.sigmoid, Tensor.logit
gammaln, multigammaln = Tensor.lgamma, Tensor.mvlgamma
i0, sinc, xlogy = Tensor.i0, Tensor.sinc, Tensor.xlogy
softmax, log_softmax, logsumexp = Tensor.softmax, Tensor.log_softmax, Tensor.logsumexp
round = Tensor.round
