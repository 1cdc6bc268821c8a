"""Linear algebra of small matrices, with the names of PyTorch and of the array API standard: `ringup.linalg`.

Every function takes any number of matrices at once, over the leading axes. Decompositions run one step after the other:
each step is one graph of the same form, so its kernels are compiled once. They look at values on the host to find out
that they are done, or that a matrix is singular.
"""

from ringup.linalg.elimination import cholesky as cholesky
from ringup.linalg.elimination import det as det
from ringup.linalg.elimination import inv as inv
from ringup.linalg.elimination import logdet as logdet
from ringup.linalg.elimination import slogdet as slogdet
from ringup.linalg.elimination import solve as solve
from ringup.linalg.general import eig as eig
from ringup.linalg.general import eigvals as eigvals
from ringup.linalg.jacobi import eigh as eigh
from ringup.linalg.jacobi import eigvalsh as eigvalsh
from ringup.linalg.jacobi import svd as svd
from ringup.linalg.jacobi import svdvals as svdvals
from ringup.linalg.norms import cond as cond
from ringup.linalg.norms import matrix_norm as matrix_norm
from ringup.linalg.norms import matrix_power as matrix_power
from ringup.linalg.norms import matrix_rank as matrix_rank
from ringup.linalg.norms import norm as norm
from ringup.linalg.norms import pinv as pinv
from ringup.linalg.norms import vector_norm as vector_norm
from ringup.linalg.orthogonal import qr as qr
from ringup.linalg.products import cross as cross
from ringup.linalg.products import diagonal as diagonal
from ringup.linalg.products import kron as kron
from ringup.linalg.products import lstsq as lstsq
from ringup.linalg.products import matrix_exp as matrix_exp
from ringup.linalg.products import multi_dot as multi_dot
from ringup.linalg.products import tensorinv as tensorinv
from ringup.linalg.products import tensorsolve as tensorsolve
from ringup.linalg.products import vander as vander
from ringup.linalg.products import vecdot as vecdot
from ringup.linalg.triangles import cholesky_inverse as cholesky_inverse
from ringup.linalg.triangles import cholesky_solve as cholesky_solve
from ringup.linalg.triangles import lu as lu
from ringup.linalg.triangles import lu_factor as lu_factor
from ringup.linalg.triangles import lu_solve as lu_solve
from ringup.linalg.triangles import lu_unpack as lu_unpack
from ringup.linalg.triangular import solve_triangular as solve_triangular
