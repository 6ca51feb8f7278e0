"""A Gaussian blur over images that every task reads and writes in place.

    python examples/image_filter.py --images 4 --size 2048

The images lie in one shared array and the results in another; a task gets the two and the number of its strip, and
nothing is copied. The result is checked against the same filter in one process.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np
from numpy.typing import NDArray

import ropewalk

Image = NDArray[np.float32]
#: One axis of the 5 by 5 binomial kernel.
KERNEL = np.array([1, 4, 6, 4, 1], dtype=np.float32) / 16
EDGE = len(KERNEL) // 2


def blur(image: Image) -> Image:
    """The image under the kernel, edges repeated: float32, the shape of the input."""
    padded = np.pad(image, EDGE, mode="edge")
    rows = sum(weight * padded[i : i + image.shape[0], :] for i, weight in enumerate(KERNEL))
    assert not isinstance(rows, int)
    columns = (weight * rows[:, i : i + image.shape[1]] for i, weight in enumerate(KERNEL))
    return sum(columns)  # type: ignore[return-value]


def blur_strip(source: Image, target: Image, number: int, first: int, last: int) -> None:
    """Writes rows `first` to `last` of the blurred image `number` into `target`; both are (images, rows, columns)."""
    top, bottom = max(0, first - EDGE), min(source.shape[1], last + EDGE)
    strip = blur(np.asarray(source[number, top:bottom]))
    target[number, first:last] = strip[first - top : first - top + last - first]


def make_images(count: int, size: int) -> Image:
    """Pictures of noise and circles: (count, size, size), float32 from 0 to 1."""
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    distance = np.hypot(axis[:, None], axis[None, :])
    noise = np.random.default_rng(7).random((count, size, size), dtype=np.float32)
    radii = np.linspace(0.2, 0.9, count, dtype=np.float32)[:, None, None]
    return (noise * 0.3 + (distance < radii) * 0.7).astype(np.float32)


def main() -> None:
    """Blurs the images with a pool and with a loop, and compares."""
    parser = argparse.ArgumentParser(description="A Gaussian blur over images in shared memory.")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--size", type=int, default=2048, help="rows and columns of each")
    parser.add_argument("--workers", type=int, help="by default one for each usable core")
    options = parser.parse_args()
    images = make_images(options.images, options.size)

    start = time.perf_counter()
    expected = np.stack([blur(image) for image in images])
    loop = time.perf_counter() - start

    with ropewalk.Pool(options.workers, kind="process", preload=["numpy"]) as pool:
        start = time.perf_counter()
        source = ropewalk.share(images)
        target = ropewalk.shared.array(images.shape, images.dtype)
        height = 256
        strips = [
            (number, first, min(first + height, options.size))
            for number, first in itertools.product(range(options.images), range(0, options.size, height))
        ]
        futures = [pool.submit(blur_strip, source, target, *strip) for strip in strips]
        for future in futures:
            future.result()
        wall = time.perf_counter() - start

    same = np.allclose(target, expected, atol=1e-6)
    print(f"{options.images} images of {options.size} x {options.size}, {len(strips)} strips")
    print(
        f"one process {loop:.2f} s; pool {wall:.2f} s, the copy into shared memory included: {loop / wall:.2f} times"
    )
    print(f"the results are {'the same' if same else 'NOT THE SAME'}")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
