"""Sets the number of threads in BLAS and OpenMP libraries that are loaded already."""

from __future__ import annotations

import ctypes
import os

#: A part of a library's file name, and the library's functions that set the number.
_SETTERS = (
    ("openblas", ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
                  "scipy_openblas_set_num_threads64_")),
    ("mkl_rt", ("MKL_Set_Num_Threads",)),
    ("blis", ("bli_thread_set_num_threads",)),
    ("libgomp", ("omp_set_num_threads",)),
    ("libomp", ("omp_set_num_threads",)),
    ("libiomp", ("omp_set_num_threads",)),
)  # fmt: skip


def _loaded_libraries() -> set[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return {line[line.index("/") :].strip() for line in maps if ".so" in line and "/" in line}


def limit_threads(count: int) -> int:
    """Sets the number of threads in every BLAS and OpenMP library that this process has loaded.

    Returns:
        The number of libraries in which it was set.
    """
    taken = 0
    for path in _loaded_libraries():
        for part, functions in _SETTERS:
            if part not in os.path.basename(path):
                continue
            try:
                library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
            except OSError:
                continue
            for function in functions:
                setter = getattr(library, function, None)
                if setter is not None:
                    setter(ctypes.c_int(count))
                    taken += 1
                    break
    return taken
