"""Linear algebra and Fourier transforms: arrays.py KIND SIZE THREADS."""

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[3]
import numpy

size = int(sys.argv[2])
random = numpy.random.default_rng(1)
a = random.standard_normal((size, size))
if sys.argv[1] == "svd":
    print(numpy.linalg.svd(a, compute_uv=False)[:3])
elif sys.argv[1] == "product":
    for _ in range(3):
        a = a @ a / size
    print(a[0, :3])
elif sys.argv[1] == "fft":
    print(numpy.abs(numpy.fft.ifft2(numpy.fft.fft2(a) ** 2))[0, :3])
else:
    print(numpy.sort(a, axis=0).cumsum(axis=1)[-1, :3], numpy.exp(a).mean())
