#!/usr/bin/env python3
"""Makes tests/golden/pictures.json: unusual pictures, and what Pillow (13 or later) reads from them.

    python3 tests/golden/make_pictures.py         needs Pillow and numpy

A list of cases: `name`, `file` (base64), and the CRC-32 of the bytes of convert("RGB") and convert("L") as
`rgb` and `grey`; `salvage` where LOAD_TRUNCATED_IMAGES is set, without which Pillow refuses the file; or
`parts`, a list of {box, size, window, exact, eighths, crc}: the RGB pixels of a crop to `box` (top, left,
height, width), resized to `size` (height, width, Image.BILINEAR) and cropped to `window`, of a picture that
was decoded at eighths/8 of its size. scripts/check/images compares many more, made by the functions below.
"""

import base64
import io
import json
import math
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageFile, ImageOps

HERE = pathlib.Path(__file__).resolve().parent


def picture(rng, height, width):
    """RGB pixels: gradients, noise and a few edges."""
    y, x = np.mgrid[:height, :width]
    planes = []
    for _ in range(3):
        a, b, c = rng.uniform(-0.4, 0.4, 2).tolist() + [rng.uniform(0, 6.3)]
        planes.append(127 + 90 * np.sin(a * x + b * y + c) + 60 * (x * 3 > width + rng.integers(0, width)))
    noise = rng.normal(0, 12, (height, width, 3))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def jpeg(pixels, mode="RGB", **options):
    image = Image.fromarray(pixels).convert(mode)
    out = io.BytesIO()
    # Pillow's buffer must take a whole file of some kinds.
    before, ImageFile.MAXBLOCK = ImageFile.MAXBLOCK, 1 << 22
    try:
        image.save(out, "JPEG", **options)
    finally:
        ImageFile.MAXBLOCK = before
    return out.getvalue()


def segments(file):
    """(marker, begin, end) of a JPEG's segments before its pixels."""
    at = 2
    while file[at + 1] != 0xDA:
        length = int.from_bytes(file[at + 2 : at + 4], "big")
        yield file[at + 1], at, at + 2 + length
        at += 2 + length


def without_adobe(file):
    for marker, begin, end in segments(file):
        if marker == 0xEE:
            return file[:begin] + file[end:]
    raise ValueError("no Adobe marker")


def with_adobe_transform(file, transform):
    """The same numbers, taken for another colour space: 0 CMYK or RGB, 2 YCCK."""
    for marker, begin, end in segments(file):
        if marker == 0xEE:
            return file[: end - 1] + bytes([transform]) + file[end:]
    raise ValueError("no Adobe marker")


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(samples, depth, kind, interlaced=False, palette=None, transparency=None):
    """A PNG of samples (height, width, channels) of `depth` bits and colour type `kind`."""
    height, width, channels = samples.shape

    def rows(part):
        out = b""
        for row in part:
            if depth == 16:
                data = row.astype(">u2").tobytes()
            elif depth == 8:
                data = row.astype(np.uint8).tobytes()
            else:
                bits = [(int(v) >> b) & 1 for v in row.ravel() for b in range(depth - 1, -1, -1)]
                data = np.packbits(bits).tobytes()
            out += b"\0" + data
        return out

    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
        parts = [samples[y::dy, x::dx] for y, x, dy, dx in passes]
        data = b"".join(rows(part) for part in parts if part.size)
    else:
        data = rows(samples)
    file = b"\x89PNG\r\n\x1a\n"
    file += png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))
    if palette is not None:
        file += png_chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    if transparency is not None:
        file += png_chunk(b"tRNS", transparency)
    return file + png_chunk(b"IDAT", zlib.compress(data, 9)) + png_chunk(b"IEND", b"")


GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}
DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGB_ALPHA: (8, 16)}


def random_png(rng, kind, depth, interlaced, transparent):
    height, width = rng.integers(1, 40, 2)
    most = 1 << depth
    samples = rng.integers(0, most, (height, width, CHANNELS[kind]))
    palette = transparency = None
    if kind == PALETTE:
        palette = rng.integers(0, 256, (most, 3))
        if transparent:
            transparency = rng.integers(0, 256, int(rng.integers(1, most + 1))).astype(np.uint8).tobytes()
    elif transparent and kind in (GREY, RGB):
        transparency = samples[0, 0].astype(">u2").tobytes()
    return png(samples, depth, kind, interlaced, palette, transparency)


def is_deep_grey(file):
    """What is read on purpose as Pillow does not: 16-bit grey without an alpha channel."""
    return file[:4] == b"\x89PNG" and file[24] == 16 and file[25] == GREY


def opened(file, turn):
    """Returns the image, turned upright by its metadata. Pillow raises exceptions for some damaged metadata: before it
    turns the image, which then counts as upright, or afterwards, when it removes the orientation from them."""
    image = Image.open(io.BytesIO(file))
    if turn:
        try:
            ImageOps.exif_transpose(image, in_place=True)
        except Exception:  # noqa: BLE001: of many kinds
            pass
    return image


def pillow(file, mode, truncated=False, turn=False):
    """The bytes that Pillow reads, or None where it refuses the file."""
    ImageFile.LOAD_TRUNCATED_IMAGES = truncated
    try:
        image = opened(file, turn)
        if is_deep_grey(file):
            image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
        return image.convert(mode).tobytes()
    except OSError:
        return None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


def size_of(file, turn=False):
    """(height, width)"""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    image = opened(file, turn)
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    return image.height, image.width


def eighths_of(box, size, exact):
    """The size, in eighths, that a JPEG is decoded at (jpeg_eighths)."""
    for eighths in () if exact else (1, 2, 4):
        if box[2] * eighths >= size[0] * 8 and box[3] * eighths >= size[1] * 8:
            return eighths
    return 8


def pillow_part(file, box, size, window, eighths, mode="RGB", truncated=False, turn=False):
    """What becomes of a part: as crop, resize and crop, of a JPEG at eighths/8 of its size."""
    ImageFile.LOAD_TRUNCATED_IMAGES = truncated
    try:
        image = Image.open(io.BytesIO(file)) if eighths != 8 else opened(file, turn)
        full = image.size
        if eighths != 8:
            # libjpeg's own grey: see decode_part.
            image.draft(mode if mode == "L" else None, tuple(side * eighths // 8 for side in full))
            assert image.size == tuple(math.ceil(side * eighths / 8) for side in full), image.size
        elif is_deep_grey(file):
            image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
        image = image.convert(mode)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    top, left, height, width = (side * eighths / 8 for side in box)
    outer = (math.floor(left), math.floor(top), math.ceil(left + width), math.ceil(top + height))
    image = image.crop(outer)
    inner = (left - outer[0], top - outer[1], left - outer[0] + width, top - outer[1] + height)
    image = image.resize((size[1], size[0]), Image.BILINEAR, box=inner)
    y, x, h, w = window
    return image.crop((x, y, x + w, y + h)).tobytes()


def cases():
    rng = np.random.default_rng(5)
    small = picture(rng, 21, 27)
    yield "4:4:4", jpeg(small, subsampling=0)
    yield "4:2:2", jpeg(small, subsampling=1)
    yield "4:2:0", jpeg(small, subsampling=2)
    yield "progressive", jpeg(small, progressive=True)
    yield "restart markers", jpeg(small, restart_marker_blocks=1)
    yield "grey JPEG", jpeg(small, "L")
    yield "RGB JPEG", jpeg(small, keep_rgb=True)
    cmyk = jpeg(small, "CMYK")
    yield "CMYK", cmyk
    yield "CMYK without Adobe's marker", without_adobe(cmyk)
    yield "YCCK", with_adobe_transform(cmyk, 2)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    yield "turned by EXIF", jpeg(small, exif=exif)
    yield "garbage after the end", jpeg(small) + b"\0\xff\x12garbage"
    for kind, name in ((GREY, "grey"), (RGB, "RGB"), (PALETTE, "palette"), (GREY_ALPHA, "grey and alpha"),
                       (RGB_ALPHA, "RGB and alpha")):  # fmt: skip
        for depth in DEPTHS[kind]:
            yield f"PNG, {name}, {depth} bits", random_png(rng, kind, depth, depth == 4, depth % 8 == 0)


def truncated_cases():
    # No progressive one: versions of libjpeg-turbo differ in how they smooth what has no details yet.
    rng = np.random.default_rng(6)
    pixels = picture(rng, 40, 50)
    for name, file in (("4:2:0", jpeg(pixels)), ("grey", jpeg(pixels, "L")), ("CMYK", jpeg(pixels, "CMYK")),
                       ("restart markers", jpeg(pixels, restart_marker_blocks=4))):  # fmt: skip
        yield "truncated: " + name, file[: len(file) * 9 // 10]


PARTS = [
    # box, size, window, exact
    ((0, 0, 120, 160), (64, 85), (3, 10, 56, 64), True),
    ((13, 27, 80, 101), (80, 101), (0, 0, 80, 101), True),
    ((40, 50, 17, 19), (40, 30), (0, 0, 40, 30), True),
    ((11, 33, 103, 99), (48, 48), (0, 0, 48, 48), False),
    ((5, 7, 111, 150), (20, 30), (1, 2, 17, 25), False),
    ((0, 1, 119, 157), (9, 11), (0, 0, 9, 11), False),
    # The height is reduced first.
    ((3, 20, 110, 60), (50, 70), (0, 0, 50, 70), True),
    ((3, 20, 110, 60), (40, 51), (4, 5, 30, 44), True),
    ((3, 20, 117, 61), (12, 24), (1, 2, 11, 17), False),
]


def main():
    out = []
    for name, file in cases():
        out.append({"name": name, "rgb": zlib.crc32(pillow(file, "RGB")), "grey": zlib.crc32(pillow(file, "L"))})
        out[-1]["file"] = base64.b64encode(file).decode()
    for name, file in truncated_cases():
        assert pillow(file, "RGB") is None
        rgb, grey = (zlib.crc32(pillow(file, mode, True)) for mode in ("RGB", "L"))
        out.append({"name": name, "salvage": True, "rgb": rgb, "grey": grey})
        out[-1]["file"] = base64.b64encode(file).decode()
    pixels = picture(np.random.default_rng(7), 120, 160)
    for name, file in (("parts, 4:2:0", jpeg(pixels, quality=50)),
                       ("parts, 4:2:2", jpeg(pixels, subsampling=1, quality=30))):  # fmt: skip
        parts = []
        for box, size, window, exact in PARTS:
            eighths = eighths_of(box, size, exact)
            crc = zlib.crc32(pillow_part(file, box, size, window, eighths))
            parts.append({"box": box, "size": size, "window": window, "exact": exact, "eighths": eighths, "crc": crc})
        out.append({"name": name, "parts": parts, "file": base64.b64encode(file).decode()})
    lines = ",\n".join(json.dumps(case) for case in out)
    (HERE / "pictures.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
