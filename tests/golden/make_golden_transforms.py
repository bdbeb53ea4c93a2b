#!/usr/bin/env python3
"""Makes tests/golden/transforms.json: small pictures before and after torchvision's transforms.

    python3 tests/golden/make_golden_transforms.py        needs torchvision and Pillow

"pictures" have a size [height, width, channels] and their bytes in hexadecimal, channels fastest. A
case names an operation of torchvision.transforms.v2 on a PIL image, the picture and the parameters,
and has the result. Operations with "trivial" are those of TrivialAugmentWide: "operation" counts its
14, "bin" of "bins" is the magnitude, which "negative" turns around. "letterbox" is ultralytics' LetterBox (center,
scaleup) with Pillow's resize in place of OpenCV's, as `letterbox` below has it. "blur" may differ by 1 in few
bytes (see gaussian_blurred). scripts/check/transforms makes thousands of cases with `random_case`.
"""

import json
import pathlib
import random

import numpy
import PIL
import PIL.Image
import torchvision
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

HERE = pathlib.Path(__file__).resolve().parent
TRIVIAL = list(v2.TrivialAugmentWide._AUGMENTATION_SPACE.items())


def as_pil(pixels):
    return PIL.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def as_pixels(image, channels):
    return numpy.asarray(image).reshape(image.height, image.width, channels)


def trivial_magnitude(operation, index, bins):
    magnitudes = TRIVIAL[operation][1][0](bins, 1, 1)
    return 0.0 if magnitudes is None else float(magnitudes[index])


def jitter(image, order, **factors):
    change = v2.ColorJitter()
    names = ("brightness", "contrast", "saturation", "hue")
    params = {f"{name}_factor": factors.get(name) for name in names}
    return change.transform(image, {"fn_idx": order, **params})


def trivial(image, operation, bin, bins, negative, interpolation, fill):
    name = TRIVIAL[operation][0]
    magnitude = trivial_magnitude(operation, bin, bins) * (-1 if negative else 1)
    change = v2.TrivialAugmentWide(bins, fill=fill)
    return change._apply_image_or_video_transform(
        image, name, magnitude, interpolation=v2.InterpolationMode(interpolation), fill=change._fill)


def affine(image, interpolation, **params):
    return F.affine(image, interpolation=v2.InterpolationMode(interpolation), **params)


def rotate(image, interpolation, **params):
    return F.rotate(image, interpolation=v2.InterpolationMode(interpolation), **params)


def resize(image, size, interpolation):
    return F.resize(image, size, v2.InterpolationMode(interpolation), antialias=True)


def letterbox(image, size, fill):
    """Matches LetterBox.__call__ of ultralytics/data/augment.py, except for the filter and sides of at least 1."""
    scale = min(size[0] / image.height, size[1] / image.width)
    width, height = max(round(image.width * scale), 1), max(round(image.height * scale), 1)
    across, down = (size[1] - width) / 2, (size[0] - height) / 2
    if (width, height) != image.size:
        image = image.resize((width, height), PIL.Image.BILINEAR)
    sides = [round(across - 0.1), round(down - 0.1), round(across + 0.1), round(down + 0.1)]
    return F.pad(image, sides, fill=fill)


OPERATIONS = {
    "resize": resize,
    "letterbox": letterbox,
    "flip_horizontally": F.horizontal_flip,
    "flip_vertically": F.vertical_flip,
    "pad": F.pad,
    "rotate": rotate,
    "affine": affine,
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "sharpness": F.adjust_sharpness,
    "hue": F.adjust_hue,
    "jitter": jitter,
    "posterize": F.posterize,
    "solarize": F.solarize,
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "trivial": trivial,
    "blur": F.gaussian_blur,
}


def result_of(picture, operation, params):
    channels = picture.shape[2]
    if operation == "grayscale":
        done = F.rgb_to_grayscale(as_pil(picture), num_output_channels=channels)
    else:
        # The factors of one operation are its only argument, whatever its name.
        values = [params["factor"]] if "factor" in params else []
        named = {} if values else dict(params)
        if operation == "trivial" or "fill" in named:
            named["fill"] = named["fill"] if channels == 3 else named["fill"][:1]
        done = OPERATIONS[operation](as_pil(picture), *values, **named)
    return as_pixels(done, channels)


def make_picture(rng, height, width, channels, kind):
    """Noise, a smooth picture, few colours, or one colour."""
    if kind == "noise":
        values = [rng.randrange(256) for _ in range(height * width * channels)]
        return numpy.array(values, numpy.uint8).reshape(height, width, channels)
    if kind == "flat":
        return numpy.full((height, width, channels), [rng.randrange(256) for _ in range(channels)], numpy.uint8)
    if kind == "few":
        colours = numpy.array([[rng.randrange(256) for _ in range(channels)] for _ in range(3)], numpy.uint8)
        return colours[[[rng.randrange(3) for _ in range(width)] for _ in range(height)]]
    y, x = numpy.mgrid[0:height, 0:width]
    slopes = [(rng.uniform(-4, 4), rng.uniform(-4, 4), rng.uniform(40, 200)) for _ in range(channels)]
    planes = [a * y + b * x + c + 12 * numpy.sin(x * a + y) for a, b, c in slopes]
    return numpy.clip(numpy.stack(planes, 2), 0, 255).astype(numpy.uint8)


def random_fill(rng):
    return [rng.randrange(256) for _ in range(3)]


def random_center(rng, height, width):
    return rng.choice([None, None, [rng.uniform(-3, width + 3), rng.uniform(-3, height + 3)], [0.0, 0.0]])


def random_affine(rng, height, width):
    limit = rng.choice([10, 90, 360])
    shear = rng.choice([0.0, 20.0, 60.0])
    return {
        "angle": rng.choice([0.0, 90.0, rng.uniform(-limit, limit), rng.uniform(-limit, limit)]),
        "translate": rng.choice([[0, 0], [rng.randint(-width, width), rng.randint(-height, height)]]),
        "scale": rng.choice([1.0, rng.uniform(0.3, 3.0), rng.uniform(0.8, 1.2)]),
        "shear": [rng.uniform(-shear, shear), rng.choice([0.0, rng.uniform(-shear, shear)])],
        "center": random_center(rng, height, width),
    }


def random_factor(rng):
    return rng.choice([0.0, 1.0, 0.5, rng.uniform(0, 1), rng.uniform(0, 2), rng.uniform(0, 8)])


def random_hue(rng):
    return rng.choice([0.0, 0.5, -0.5, rng.uniform(-0.5, 0.5), rng.uniform(-0.1, 0.1)])


def random_case(rng, height, width):
    """An operation and parameters."""
    operation = rng.choice([*OPERATIONS, "grayscale", "affine", "rotate", "trivial", "trivial", "jitter"])
    interpolation = {"interpolation": rng.choice(["nearest", "bilinear"]), "fill": random_fill(rng)}
    if operation == "resize":
        size = [rng.randint(1, 90) for _ in range(rng.randint(1, 2))]
        # The longer side of a thin image would become too long.
        size = size if len(size) == 2 or max(height, width) < 20 * min(height, width) else size * 2
        return operation, {"size": size, "interpolation": rng.choice(["nearest", "bilinear", "bicubic"])}
    if operation == "letterbox":
        return operation, {"size": [rng.randint(1, 90) for _ in range(2)], "fill": random_fill(rng)}
    if operation == "pad":
        sides = [rng.randrange(rng.choice([3, 12, 90])) for _ in range(4)]
        mode = rng.choice(["constant", "edge", "reflect", "symmetric"])
        return operation, {"padding": sides, "padding_mode": mode, "fill": random_fill(rng)}
    if operation == "rotate":
        angle = rng.choice([rng.uniform(-360, 360), rng.uniform(-20, 20), float(rng.randrange(-360, 361, 45))])
        expand, center = rng.random() < 0.4, random_center(rng, height, width)
        return operation, {"angle": angle, "expand": expand, "center": center, **interpolation}
    if operation == "affine":
        return operation, random_affine(rng, height, width) | interpolation
    if operation in ("brightness", "contrast", "saturation", "sharpness"):
        return operation, {"factor": random_factor(rng)}
    if operation == "hue":
        return operation, {"factor": random_hue(rng)}
    if operation == "jitter":
        order = rng.sample(range(4), 4)
        factors = {name: random_factor(rng) for name in ("brightness", "contrast", "saturation") if rng.random() < 0.7}
        return operation, {"order": order, "hue": random_hue(rng)} | factors
    if operation == "posterize":
        return operation, {"factor": rng.randint(1, 8)}
    if operation == "solarize":
        return operation, {"factor": rng.choice([0.0, 255.0, 128.0, rng.uniform(0, 255)])}
    if operation == "trivial":
        bins = rng.choice([31, 31, 2, 3, rng.randint(2, 300)])
        which = rng.randrange(len(TRIVIAL))
        negative = TRIVIAL[which][1][1] and rng.random() < 0.5
        return operation, {"operation": which, "bin": rng.randrange(bins), "bins": bins,
                           "negative": negative} | interpolation  # fmt: skip
    if operation == "blur":
        # torch refuses a kernel that reaches beyond the opposite edge.
        sides = [rng.randrange(1, min(2 * size, 24), 2) for size in (width, height)]
        return operation, {"kernel_size": sides, "sigma": [rng.uniform(0.1, 3), rng.uniform(0.1, 3)]}
    return operation, {}


def as_json(picture):
    return {"size": list(picture.shape), "pixels": picture.tobytes().hex()}


def golden_cases():
    """(picture, operation, parameters): each operation, and the ends of its parameters."""
    fill = [10, 200, 77]
    near, line = {"interpolation": "nearest", "fill": fill}, {"interpolation": "bilinear", "fill": fill}
    still = {"translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0], "center": None}
    for picture in (0, 1):
        for operation in ("flip_horizontally", "flip_vertically", "grayscale", "autocontrast", "equalize"):
            yield picture, operation, {}
        for mode in ("constant", "edge", "reflect", "symmetric"):
            yield picture, "pad", {"padding": [3, 1, 14, 2], "padding_mode": mode, "fill": fill}
        for angle, expand in ((90.0, False), (180.0, False), (-90.0, True), (33.25, True), (-140.5, False)):
            yield picture, "rotate", {"angle": angle, "expand": expand, "center": None} | line
        yield picture, "rotate", {"angle": 17.5, "expand": False, "center": [2.0, 3.5]} | near
        yield picture, "rotate", {"angle": 0.0, "expand": False, "center": [2.0, 3.5]} | near
        yield picture, "affine", still | {"angle": 12.5, "scale": 1.3, "shear": [10.0, -20.0]} | near
        yield picture, "affine", still | {"angle": -200.0, "translate": [2, -3], "scale": 0.7} | line
        yield picture, "affine", still | {"angle": 0.0, "translate": [-4, 1], "scale": 1.75} | near
        yield picture, "affine", still | {"angle": 0.0, "shear": [30.0, 15.0], "center": [0.0, 0.0]} | line
        for operation in ("brightness", "contrast", "saturation", "sharpness"):
            for factor in (0.0, 0.3, 1.0, 1.7):
                yield picture, operation, {"factor": factor}
        for factor in (-0.5, -0.1, 0.25):
            yield picture, "hue", {"factor": factor}
        for order, factors in (([2, 0, 3, 1], (1.4, 0.6, 1.9, 0.1)), ([3, 1, 0, 2], (0.7, 1.5, 0.2, -0.2))):
            named = dict(zip(("brightness", "contrast", "saturation", "hue"), factors))
            yield picture, "jitter", {"order": order} | named
        for bits in (1, 4):
            yield picture, "posterize", {"factor": bits}
        for threshold in (0.0, 127.5, 255.0):
            yield picture, "solarize", {"factor": threshold}
        yield picture, "blur", {"kernel_size": [5, 3], "sigma": [1.5, 0.6]}
    for operation in range(len(TRIVIAL)):
        for index, bins, negative in ((30, 31, False), (17, 31, True)):
            sign = {"negative": negative and TRIVIAL[operation][1][1]}
            params = {"operation": operation, "bin": index, "bins": bins} | sign
            yield 2 + operation % 2, "trivial", params | near
    for picture in (0, 1, 4, 5):
        for interpolation in ("nearest", "bilinear", "bicubic"):
            for size in ([5], [12], [4, 17], [20, 3]):
                yield picture, "resize", {"size": size, "interpolation": interpolation}
        for size in ([8, 8], [15, 9], [4, 13]):
            yield picture, "letterbox", {"size": size, "fill": fill}
    for picture in (4, 5):
        yield picture, "sharpness", {"factor": 0.5}
        yield picture, "rotate", {"angle": 45.0, "expand": True, "center": None} | line
        yield picture, "pad", {"padding": [2, 2, 2, 2], "padding_mode": "reflect", "fill": fill}
        yield picture, "equalize", {}


def main():
    rng = random.Random(20)
    sizes = ((9, 7, 3, "smooth"), (8, 11, 1, "noise"), (8, 8, 3, "smooth"), (9, 8, 1, "smooth"), (1, 1, 3, "noise"),
             (2, 5, 3, "few"))  # fmt: skip
    pictures = [make_picture(rng, *size) for size in sizes]
    lines = []
    for picture, operation, params in golden_cases():
        result = result_of(pictures[picture], operation, params)
        case = {"picture": picture, "operation": operation, "params": params}
        lines.append(json.dumps(case | as_json(result), separators=(",", ":")))
    versions = f'"torchvision": "{torchvision.__version__.split("+")[0]}", "Pillow": "{PIL.__version__}"'
    drawn = ",\n".join(json.dumps(as_json(picture), separators=(",", ":")) for picture in pictures)
    cases = ",\n".join(lines)
    (HERE / "transforms.json").write_text(f'{{{versions}, "pictures": [\n{drawn}\n], "cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
