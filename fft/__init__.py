"""Discrete Fourier transforms, with the names of NumPy, PyTorch and the array API standard: `ringup.fft`.

A transform is a lazy graph: a few products with small matrices, and factors between them. It looks at no value. Lengths
with prime factors up to 128 take one step for every factor of up to 64 or so; others are convolutions of such lengths.
"""

from ringup.fft.frequencies import fftfreq as fftfreq
from ringup.fft.frequencies import fftshift as fftshift
from ringup.fft.frequencies import ifftshift as ifftshift
from ringup.fft.frequencies import rfftfreq as rfftfreq
from ringup.fft.transforms import fft as fft
from ringup.fft.transforms import fft2 as fft2
from ringup.fft.transforms import fftn as fftn
from ringup.fft.transforms import hfft as hfft
from ringup.fft.transforms import ifft as ifft
from ringup.fft.transforms import ifft2 as ifft2
from ringup.fft.transforms import ifftn as ifftn
from ringup.fft.transforms import ihfft as ihfft
from ringup.fft.transforms import irfft as irfft
from ringup.fft.transforms import irfft2 as irfft2
from ringup.fft.transforms import irfftn as irfftn
from ringup.fft.transforms import rfft as rfft
from ringup.fft.transforms import rfft2 as rfft2
from ringup.fft.transforms import rfftn as rfftn
