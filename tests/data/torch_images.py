# SPDX-License-Identifier: Apache-2.0
"""PIL's and torchvision's side of torch_images.cpp. `torch_images.py FOLDER` writes image files of every kind that peal
reads and what PIL makes of them, and images with what torchvision's functions on PIL images make of them."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nn"))
try:
    import PIL
    from PIL import Image
    import torch
    import torchvision
except ImportError as error:
    print(f"SKIPPED: {error}; install python3-torchvision to run this test")
    sys.exit(77)
import numpy
from torch_exchange import save


def drawn(height, width, channels, seed, smooth=True):
    """Noise, or waves with a little of it."""
    random = numpy.random.RandomState(seed)
    noise = random.randint(0, 256, (height, width, channels))
    if smooth:
        y, x = numpy.mgrid[0:height, 0:width]
        waves = [127 + 100 * numpy.sin(x * random.uniform(0.02, 0.3) + y * random.uniform(0.02, 0.3)) for _ in range(channels)]
        noise = numpy.stack(waves, 2) + noise / 10
    return noise.clip(0, 255).astype(numpy.uint8)


def image(height, width, mode, seed):
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    pixels = drawn(height, width, channels, seed)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode)


def as_tensor(pil):
    return torch.from_numpy(numpy.array(pil.convert("RGB")))


def make_files(folder):
    files = {}

    def add(name, pil, **options):
        path = f"{folder}/{name}"
        pil.save(path, **options)
        with Image.open(path) as read:
            files[name] = as_tensor(read)

    seed = 0
    for height, width in ((1, 1), (8, 8), (17, 31), (64, 48), (100, 3)):
        for mode in ("L", "RGB", "CMYK"):
            for subsampling in (0, 1, 2) if mode == "RGB" else (0,):
                for progressive in (False, True):
                    seed += 1
                    add(f"{mode}{height}x{width}.{subsampling}{'p' if progressive else ''}.jpg", image(height, width, mode, seed),
                        quality=40 + seed, subsampling=subsampling, progressive=progressive)
        for mode in ("L", "LA", "RGB", "RGBA"):
            seed += 1
            add(f"{mode}{height}x{width}.png", image(height, width, mode, seed))
        add(f"1bit{height}x{width}.png", image(height, width, "L", seed).convert("1"))
        for colors in (2, 4, 16, 200):
            palette = image(height, width, "RGB", seed).quantize(colors)
            add(f"P{colors}.{height}x{width}.png", palette, bits={2: 1, 4: 2, 16: 4, 200: 8}[colors])
            add(f"PT{colors}.{height}x{width}.png", palette, transparency=0)
    save(f"{folder}/files", files)
    print(f"{len(files)} files, PIL {PIL.__version__}, torchvision {torchvision.__version__}")


if __name__ == "__main__":
    make_files(sys.argv[1])
