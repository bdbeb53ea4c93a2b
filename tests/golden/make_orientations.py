#!/usr/bin/env python3
"""Makes tests/golden/orientations.json: images that are stored rotated, and Exif data, as Pillow reads them.

    python3 tests/golden/make_orientations.py        needs Pillow and numpy

"cases" are as in image_formats.json, with the pixels of ImageOps.exif_transpose. "exif" are pairs of Exif data
in hexadecimal and the orientation that exif_transpose goes by: 1 to 8, or null if the tag is missing. Where
Pillow raises an exception it is 1. scripts/check/images makes many more with `random_exif`.
"""

import io
import json
import pathlib
import struct
import warnings
import zlib

import numpy
import PIL
from PIL import ExifTags, Image

import make_pictures  # next to this file

HERE = pathlib.Path(__file__).resolve().parent
ORIENTATION = 274
PREFIX = b"Exif\0\0"
XMP = '<x:xmpmeta><rdf:Description tiff:Orientation="{}"/></x:xmpmeta>'
XMP_NAME = b"http://ns.adobe.com/xap/1.0/\0"
RAW_PROFILE = b"Raw profile type exif"


def exif_data(orientation, order="<", kind=3, count=1, value=None, before=(), first=8):
    """Returns a TIFF structure with the tag: `kind` is its type, `value` its four bytes, `before` other entries."""
    codes = {3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 13: "I"}
    if value is None:
        value = struct.pack(order + codes[kind], orientation).ljust(4, b"\0")
    entries = [*before, struct.pack(order + "HHI", ORIENTATION, kind, count) + value]
    data = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", first)
    return data.ljust(first, b"\0") + struct.pack(order + "H", len(entries)) + b"".join(entries) + b"\0" * 4


def random_exif(rng):
    """Exif data of unusual kinds, some of them damaged."""
    order = "<>"[rng.integers(2)]
    orientation = int(rng.integers(1, 10))
    kind = int(rng.choice([3] * 9 + [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 99]))
    count = int(rng.choice([1] * 9 + [0, 2, 3, 1 << 31]))
    entry = struct.pack(order + "HHI", 315, int(rng.integers(1, 18)), int(rng.integers(0, 9))) + bytes([30, 0, 0, 0])
    data = exif_data(orientation, order, 3, first=int(rng.integers(8, 13)), before=[entry] * int(rng.integers(3)))
    at = len(data) - 16  # of the entry
    value = struct.pack(order + "H", orientation).ljust(4, b"\0")
    if kind in (4, 9, 13):
        value = struct.pack(order + "I", orientation)
    elif kind == 11:
        value = struct.pack(order + "f", orientation)
    elif kind in (1, 2, 6, 7):
        value = bytes([orientation + (48 if kind == 2 else 0), 0, 0, 0])
    elif kind in (5, 10, 12, 16):
        value = struct.pack(order + "I", len(data))
        factor = int(rng.integers(-2, 4))
        signs = "ii" if kind == 10 else "II"
        rational = struct.pack(order + signs, *(v if kind == 10 else abs(v) for v in (orientation * factor, factor)))
        data += {12: struct.pack(order + "d", orientation), 16: struct.pack(order + "Q", orientation)}.get(kind, rational)
    data = data[:at] + struct.pack(order + "HHI", ORIENTATION, kind, count) + value + data[at + 12 :]
    data = PREFIX * int(rng.choice([0, 1, 1, 1, 2])) + data
    if rng.random() < 0.4:
        data = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            data[rng.integers(len(data))] = int(rng.choice([0, 1, 6, 255, rng.integers(256)]))
        data = bytes(data)[: int(rng.integers(len(data) + 1)) if rng.random() < 0.4 else None]
    return data


def orientation_of(exif):
    """Returns the orientation that exif_transpose uses."""
    found = Image.Exif()
    try:
        found.load(exif)
        if ExifTags.Base.Orientation not in found:
            return None
        value = found[ExifTags.Base.Orientation]
        return next((each for each in range(2, 9) if value == each), 1)
    except Exception:  # noqa: BLE001: of many kinds
        return 1


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def with_segments(jpeg, *segments):
    """Returns a JPEG with APP1 segments after its first marker."""
    packed = b"".join(b"\xff\xe1" + struct.pack(">H", len(each) + 2) + each for each in segments)
    return jpeg[:2] + packed + jpeg[2:]


def with_chunk(png, kind, data, at_end=False):
    """Returns a PNG with a chunk before or after its pixels."""
    place = png.rindex(b"IEND") - 4 if at_end else 33
    return png[:place] + make_pictures.png_chunk(kind, data) + png[place:]


def raw_profile(exif):
    lines = [exif.hex()[i : i + 72] for i in range(0, 2 * len(exif), 72)]
    return f"\nexif\n{len(exif):8}\n".encode() + "\n".join(lines).encode() + b"\n"


def cases(rng):
    def noise(*shape):
        return Image.fromarray(rng.integers(0, 256, shape, dtype=numpy.uint8))

    for orientation in range(1, 9):
        exif = PREFIX + exif_data(orientation, "<>"[orientation % 2])
        colour, grey = noise(5, 7, 3), noise(6, 3)
        yield f"JPEG {orientation}", saved(colour, "JPEG", exif=exif, quality=90, subsampling=orientation % 3)
        yield f"JPEG grey {orientation}", saved(grey, "JPEG", exif=exif)
        yield f"PNG {orientation}", saved(colour, "PNG", exif=exif)
        yield f"WEBP {orientation}", saved(colour, "WEBP", exif=exif, lossless=True)
    jpeg, png = saved(noise(4, 6, 3), "JPEG"), saved(noise(4, 6, 3), "PNG")
    six, broken = exif_data(6), PREFIX + b"QQ*\0\0\0\0\0"
    xmp = XMP.format(8).encode()
    yield "JPEG of two Exif segments", with_segments(jpeg, PREFIX + six[:15], PREFIX + six[15:])
    yield "JPEG XMP", with_segments(jpeg, XMP_NAME + xmp)
    yield "JPEG XMP element", with_segments(jpeg, XMP_NAME + b"<tiff:Orientation>3</tiff:Orientation>")
    yield "JPEG XMP and Exif", with_segments(jpeg, XMP_NAME + xmp, PREFIX + six)
    yield "JPEG XMP and Exif without the tag", with_segments(jpeg, XMP_NAME + xmp, PREFIX + exif_data(6, kind=14, value=b"1234"))
    yield "JPEG XMP and broken Exif", with_segments(jpeg, XMP_NAME + xmp, broken)
    yield "JPEG Exif of another name", with_segments(jpeg, b"EXIF\0\0" + six)
    yield "JPEG progressive", saved(noise(21, 17, 3), "JPEG", exif=PREFIX + six, progressive=True)
    yield "PNG eXIf at the end", with_chunk(png, b"eXIf", six, at_end=True)
    yield "PNG two eXIf", with_chunk(with_chunk(png, b"eXIf", six), b"eXIf", exif_data(3), at_end=True)
    yield "PNG XMP", with_chunk(png, b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)
    yield "PNG XMP deflated", with_chunk(png, b"iTXt", b"XML:com.adobe.xmp\0\1\0en\0\0" + zlib.compress(xmp))
    yield "PNG profile", with_chunk(png, b"zTXt", RAW_PROFILE + b"\0\0" + zlib.compress(raw_profile(PREFIX + six)))
    yield "PNG profile as text", with_chunk(png, b"tEXt", RAW_PROFILE + b"\0" + raw_profile(six))
    yield "PNG broken profile", with_chunk(png, b"tEXt", RAW_PROFILE + b"\0\n\n\n4949zz")
    yield "PNG 16 bits", saved(Image.fromarray(rng.integers(0, 65536, (5, 3), dtype=numpy.uint16)), "PNG", exif=six)
    yield "WEBP XMP", saved(noise(4, 6, 3), "WEBP", xmp=xmp, lossless=True)
    yield "WEBP lossy with alpha", saved(noise(16, 24, 4), "WEBP", exif=PREFIX + six)
    yield "TIFF 16 bits", saved(Image.fromarray(rng.integers(0, 65536, (5, 3), dtype=numpy.uint16)), "TIFF", tiffinfo={274: 6})


def main():
    warnings.simplefilter("ignore")  # Pillow's, of damaged Exif data
    rng = numpy.random.default_rng(20)
    lines = []
    for name, file in cases(rng):
        image = make_pictures.opened(file, True)
        if image.mode.startswith("I"):  # the upper 8 bits: Pillow clips at 255
            image = Image.fromarray((numpy.asarray(image).astype(numpy.int64) >> 8).astype(numpy.uint8))
        case = {"name": name, "file": file.hex(), "height": image.height, "width": image.width}
        case |= {"rgb": image.convert("RGB").tobytes().hex(), "grey": image.convert("L").tobytes().hex()}
        lines.append(json.dumps(case))
    blobs = [b"", PREFIX, b"II", *(random_exif(rng) for _ in range(500))]
    exif = ",\n".join(json.dumps([blob.hex(), orientation_of(blob)]) for blob in blobs)
    joined = ",\n".join(lines)
    text = f'{{"pillow": "{PIL.__version__}", "cases": [\n{joined}\n], "exif": [\n{exif}\n]}}\n'
    (HERE / "orientations.json").write_text(text)


if __name__ == "__main__":
    main()
