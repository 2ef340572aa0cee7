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
from torchvision.transforms import autoaugment, functional as F
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


INTERPOLATIONS = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
                  "lanczos": Image.Resampling.LANCZOS, "box": Image.Resampling.BOX, "hamming": Image.Resampling.HAMMING}
SIZES = ((1, 1), (5, 9), (32, 32), (61, 83), (120, 77))


def spaces(width, height):
    """The operations of automatic augmentation, each with some of its strengths."""
    usual = autoaugment.RandAugment()._augmentation_space(31, (height, width))
    usual["Invert"] = (torch.tensor(0.0), False)
    wide = autoaugment.TrivialAugmentWide()._augmentation_space(31)
    for space in (usual, wide):
        for op, (magnitudes, signed) in space.items():
            yield op, ([float(m) for m in magnitudes[::6]] if magnitudes.ndim else [0.0], signed)


OPS = ("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness", "Posterize",
       "Solarize", "AutoContrast", "Equalize", "Invert")


def make_policies(folder):
    """The spaces and pairs of automatic augmentation, as numbers."""
    results = {}
    for name in ("imagenet", "cifar10", "svhn"):
        augment = autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy(name))
        steps = [[[OPS.index(op), p, -1 if bin is None else bin] for op, p, bin in pair] for pair in augment.policies]
        results[f"policy {name}"] = torch.tensor(steps, dtype=torch.float32)
    for bins in (2, 9, 10, 31):
        of_kind = {"usual": autoaugment.RandAugment()._augmentation_space(bins, (240, 321)),
                   "wide": autoaugment.TrivialAugmentWide()._augmentation_space(bins)}
        for kind, space in of_kind.items():
            for op, (magnitudes, _) in space.items():
                results[f"space {kind} {OPS.index(op)} {bins}"] = magnitudes.expand(bins).to(torch.float64).contiguous()
    save(f"{folder}/policies", results)


def make_transforms(folder):
    """Each result under the words that peal's program reads: what, of which image, with which parameters."""
    results = {"pillow 0": torch.tensor([int(PIL.__version__.split(".")[0])])}
    images = [image(*size, "RGB", 1000 + k) for k, size in enumerate(SIZES)]
    images.append(Image.fromarray(drawn(40, 50, 3, 7, smooth=False)))  # noise alone
    flat = drawn(16, 16, 3, 8)
    flat[2:9, 3:11] = (17, 17, 17)
    images.append(Image.fromarray(flat))
    for k, pil in enumerate(images):
        results[f"image {k}"] = as_tensor(pil)

    def add(words, k, pil):
        results[f"{words[0]} {k} {' '.join(str(word) for word in words[1:])}"] = as_tensor(pil)

    modes = {name: F.InterpolationMode(name) for name in ("nearest", "bilinear")}
    random = numpy.random.RandomState(11)
    for k, pil in enumerate(images):
        width, height = pil.size

        def box():
            top, left = random.randint(height), random.randint(width)
            return top, left, 1 + random.randint(height - top), 1 + random.randint(width - left)

        for name, how in INTERPOLATIONS.items():
            for size in ((1, 1), (height, width), (height, 7), (9, width), (2 * height + 1, width // 2 + 1), (33, 31)):
                add(("resize", name, *size), k, F.resize(pil, list(size), how))
            for _ in range(3):
                part = box()
                add(("resized_crop", name, *part, 24, 17), k, F.resized_crop(pil, *part, [24, 17], how))
                top, left, high, wide = part
                real = [left + 0.25, top + 0.125, left + wide - 0.25 * random.rand(), top + high - 0.5 * random.rand()]
                real = [float(edge) for edge in real]
                words = ("real_box", name, *(repr(edge) for edge in real), 13, 21)
                add(words, k, pil.resize((21, 13), how, box=real))
        for size in (1, 8, 30, 64):
            for longest in (None, size + 1, 2 * size):
                add(("shorter", size, longest or 0), k, F.resize(pil, size, INTERPOLATIONS["bilinear"], max_size=longest))
        for size in ((1, 1), (4, 5), (5, 4), (33, 31), (60, 83), (200, 10), (130, 131)):
            add(("center_crop", *size), k, F.center_crop(pil, list(size)))
        add(("hflip",), k, F.hflip(pil))
        add(("vflip",), k, F.vflip(pil))
        for border in ((0, 0, 0, 0), (1, 2, 3, 4), (4, 4, 4, 4)):
            for mode in ("constant", "edge", "reflect", "symmetric"):
                if mode != "reflect" or min(height, width) > 4:
                    if mode != "symmetric" or min(height, width) >= 4:
                        fill = (9, 200, 31) if mode == "constant" else 0
                        add(("pad", *border, mode), k, F.pad(pil, list(border), fill, mode))
        add(("greyscale",), k, F.rgb_to_grayscale(pil, 3))
        for factor in (0.0, 0.1, 0.5, 0.9, 1.0, 1.1, 1.5, 3.0, *random.uniform(0, 2, 4)):
            for what in ("brightness", "contrast", "saturation"):
                add((what, repr(float(factor))), k, getattr(F, f"adjust_{what}")(pil, float(factor)))
        for share in (-0.5, -0.2, -0.01, 0.0, 0.1, 0.25, 0.5, *random.uniform(-0.5, 0.5, 4)):
            add(("hue", repr(float(share))), k, F.adjust_hue(pil, float(share)))
        for angle in (0, 90, 180, 270, -90, 450, 1, -7.5, 30, 45, 133.7, *random.uniform(-180, 180, 4)):
            for name in ("nearest", "bilinear"):
                for expand in (False, True):
                    turned = F.rotate(pil, float(angle), INTERPOLATIONS[name], expand, fill=(5, 6, 7))
                    add(("rotate", repr(float(angle)), name, int(expand)), k, turned)
        for words in ((0, 3, -2, 1, 0, 0), (30, 0, 0, 0.7, 0, 0), (0, 2.5, 1.25, 1.3, 0, 0), (-75, 1, 2, 1.1, 12, -20),
                      tuple(random.uniform(-30, 30, 3)) + (random.uniform(0.5, 2),) + tuple(random.uniform(-50, 50, 2))):
            for name in ("nearest", "bilinear"):
                angle, right, down, scale, *shear = map(float, words)
                made = F.affine(pil, angle, [right, down], scale, shear, modes[name], fill=(5, 6, 7))
                add(("affine", *(repr(float(word)) for word in words), name), k, made)
        for op, (magnitudes, signed) in spaces(width, height):
            for magnitude in magnitudes:
                for name in ("nearest", "bilinear"):
                    for sign in (1, -1) if signed else (1,):
                        made = autoaugment._apply_op(pil, op, sign * magnitude, modes[name], (5, 6, 7))
                        add(("augment", op, repr(sign * magnitude), name), k, made)
        part = box()
        tensor = torch.from_numpy(numpy.array(pil)).permute(2, 0, 1)
        white = torch.tensor([255, 0, 3], dtype=torch.uint8)[:, None, None]
        results[f"erase {k} {' '.join(str(edge) for edge in part)}"] = F.erase(tensor, *part, white).permute(1, 2, 0).contiguous()
        for mean, std in (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.1, 0.7, 0.3), (0.31, 0.17, 2.9))):
            words = " ".join(repr(number) for number in mean + std)
            results[f"normalize {k} {words}"] = F.normalize(F.to_tensor(pil), mean, std)
    save(f"{folder}/transforms", results)
    print(f"{len(results) - len(images) - 1} transformed images")


def make_grids(folder):
    """What torchvision makes of tensors, and writes into files."""
    torch.manual_seed(5)
    inputs = {"grey": torch.rand(5, 1, 4, 6) * 1.5 - 0.25, "colour": torch.randn(9, 3, 5, 3), "one": torch.rand(3, 7, 6),
              "plane": torch.rand(3, 4)}
    results = {f"images {name}": images for name, images in inputs.items()}
    for name, images in inputs.items():
        for k, options in enumerate(({}, {"nrow": 3, "padding": 1}, {"normalize": True, "pad_value": 0.7},
                                     {"nrow": 2, "normalize": True, "scale_each": True, "padding": 0},
                                     {"normalize": True, "value_range": (-0.5, 0.75)})):
            results[f"grid {name} {k}"] = torchvision.utils.make_grid(images, **options).contiguous()
            torchvision.utils.save_image(images, f"{folder}/grid.png", **options)
            with Image.open(f"{folder}/grid.png") as read:
                results[f"file {name} {k}"] = as_tensor(read)
    save(f"{folder}/grids", results)


def make_mixed(folder):
    """torchvision's MixUp and CutMix, whose code of 0.15 and later these lines are."""
    torch.manual_seed(3)
    x, y = torch.randn(5, 3, 9, 7), torch.tensor([3, 0, 3, 2, 1])
    share, box = 0.3125, (2, 1, 5, 4)
    hot = torch.nn.functional.one_hot(y, 4).float()

    def mixed(a, by):
        return a.roll(1, 0).mul(1 - by).add(a.mul(by))

    top, left, height, width = box
    cut = x.clone()
    cut[..., top:top + height, left:left + width] = x.roll(1, 0)[..., top:top + height, left:left + width]
    save(f"{folder}/mixed", {"x": x, "y": y, "mixup.x": mixed(x, share), "mixup.y": mixed(hot, share), "cutmix.x": cut,
                             "cutmix.y": mixed(hot, 1 - height * width / 63)})


if __name__ == "__main__":
    make_files(sys.argv[1])
    make_transforms(sys.argv[1])
    make_mixed(sys.argv[1])
    make_grids(sys.argv[1])
    make_policies(sys.argv[1])
