#!/usr/bin/env python3
"""Makes tests/golden/image_formats.json: small WebP, BMP, GIF, TIFF and PNM files with Pillow's pixels.

    python3 tests/golden/make_image_formats.py        needs Pillow and numpy

A case has its "name", the "file" in hexadecimal, "height" and "width", and the bytes of
Image.open(file).convert("RGB") and of convert("L") as "rgb" and "grey". Of grey images of 16 bits,
which Pillow clips at 255, these are the upper 8 bits.
"""

import io
import json
import pathlib
import struct
import zlib

import numpy
import PIL
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
RANDOM = numpy.random.default_rng(20)
CASES = []


def noise(*shape):
    return RANDOM.integers(0, 256, shape, dtype=numpy.uint8)


def add(name, file):
    image = Image.open(io.BytesIO(file))
    image.load()
    if image.mode.startswith("I"):
        image = Image.fromarray((numpy.asarray(image).astype(numpy.int64) >> 8).astype(numpy.uint8))
    CASES.append(
        {
            "name": name,
            "file": file.hex(),
            "height": image.height,
            "width": image.width,
            "rgb": image.convert("RGB").tobytes().hex(),
            "grey": image.convert("L").tobytes().hex(),
        }
    )


def save(name, image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    add(f"{kind} {name}", file.getvalue())


def bmp(name, width, height, bits, data, *, header=40, compression=0, palette=b"", masks=b"", top_down=False):
    colours = len(palette) // (3 if header == 12 else 4)
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        signed = -height if top_down else height
        info = struct.pack("<IiiHHIIiiII", header, width, signed, 1, bits, compression, len(data), 0, 0, colours, 0)
        info += masks if header == 40 else masks.ljust(header - 40, b"\0")
    offset = 14 + len(info) + len(palette)
    add(f"BMP {name}", b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + info + palette + data)


def bmps():
    for bits in (1, 4, 8, 16, 24, 32):
        rows = noise((9 * bits + 31) // 32 * 4 * 5).tobytes()
        palette = noise(4 << bits).tobytes() if bits <= 8 else b""
        bmp(f"{bits} bits", 9, 5, bits, rows, palette=palette, top_down=bits == 24)
    bmp("of OS/2", 9, 5, 8, noise(60).tobytes(), header=12, palette=noise(768).tobytes())
    for masks in ((0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)):
        bmp(f"16 bits, masks {masks}", 3, 2, 16, noise(16).tobytes(), compression=3, masks=struct.pack("<III", *masks))
    masks = struct.pack("<IIII", 0xFF, 0xFF00, 0xFF0000, 0xFF000000)
    bmp("32 bits, masks", 3, 2, 32, noise(24).tobytes(), header=108, compression=3, masks=masks)
    bmp("few colours", 4, 3, 8, noise(12).tobytes(), palette=noise(12).tobytes())
    runs = bytes([3, 7, 0, 2, 3, 1, 4, 9, 0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 3, 6, 0, 0, 8, 5, 0, 1])
    bmp("RLE8", 8, 4, 8, runs, compression=1, palette=noise(1024).tobytes())
    runs = bytes([8, 0x37, 0, 0, 3, 0x12, 0, 5, 0x12, 0x34, 0x50, 0, 0, 0, 7, 0xAB, 1, 0xC0, 0, 1])
    bmp("RLE4", 8, 3, 4, runs, compression=2, palette=noise(64).tobytes())


def tiff(
    name, width, height, bits, samples, photometric, *, order="<", planar=1, rows=0, tile=0, deflate=False, tags=None
):
    values = 1 if planar == 2 else samples
    columns = tile or width
    lines = tile or rows or height
    across = -(-width // tile) if tile else 1
    segments = []
    for _ in range(samples if planar == 2 else 1):
        for y in range(0, height, lines):
            count = lines if tile else min(lines, height - y)
            for _ in range(across):
                segments.append(noise((columns * values * bits + 7) // 8 * count).tobytes())
    if deflate:
        segments = [zlib.compress(segment) for segment in segments]
    body, offsets = b"", []
    for segment in segments:
        offsets.append(8 + len(body))
        body += segment + b"\0" * (len(segment) % 2)
    fields = {256: [width], 257: [height], 258: [bits] * samples, 259: [8 if deflate else 1], 262: [photometric]}
    fields |= {277: [samples], 284: [planar], **(tags or {})}
    fields |= {322: [tile], 323: [tile]} if tile else {278: [lines]}
    fields |= {324 if tile else 273: offsets, 325 if tile else 279: [len(segment) for segment in segments]}
    start = 8 + len(body)
    after, entries, extra = start + 2 + 12 * len(fields) + 4, b"", b""
    for tag in sorted(fields):
        is_long = tag in (273, 279, 324, 325)
        raw = struct.pack(f"{order}{len(fields[tag])}{'I' if is_long else 'H'}", *fields[tag])
        place = raw.ljust(4, b"\0") if len(raw) <= 4 else struct.pack(order + "I", after + len(extra))
        extra += raw if len(raw) > 4 else b""
        entries += struct.pack(order + "HHI", tag, 4 if is_long else 3, len(fields[tag])) + place
    magic = b"II*\0" if order == "<" else b"MM\0*"
    file = magic + struct.pack(order + "I", start) + body
    file += struct.pack(order + "H", len(fields)) + entries + struct.pack(order + "I", 0) + extra
    add(f"TIFF {name}", file)


def tiffs():
    for bits in (1, 2, 4, 8, 16):
        for order in "<>":
            tiff(f"grey, {bits} bits {order}", 11, 5, bits, 1, 1, order=order, rows=2)
    for bits in (1, 4, 8):
        tiff(f"white is zero, {bits} bits", 11, 5, bits, 1, 0)
        tiff(f"palette, {bits} bits", 11, 5, bits, 1, 3, tags={320: RANDOM.integers(0, 65536, 3 << bits).tolist()})
    for planar in (1, 2):
        for tile in (0, 16):
            tiff(f"RGB, planar {planar}, tile {tile}", 18, 5, 8, 3, 2, planar=planar, tile=tile, deflate=tile == 0)
            tiff(f"CMYK, planar {planar}, tile {tile}", 18, 5, 8, 4, 5, planar=planar, tile=tile)
    for order in "<>":
        tiff(f"RGB, 16 bits {order}", 7, 4, 16, 3, 2, order=order)
    tiff("CMYK, 16 bits", 7, 4, 16, 4, 5)
    for kind in (0, 1, 2):
        tiff(f"RGB and an extra sample of kind {kind}", 7, 4, 8, 4, 2, tags={338: [kind]})
    tiff("grey and alpha", 7, 4, 8, 2, 1, tags={338: [2]})
    for orientation in range(2, 9):
        tiff(f"orientation {orientation}", 3, 2, 8, 3, 2, tags={274: [orientation]})
    colour, grey = Image.fromarray(noise(9, 13, 3)), Image.fromarray(noise(9, 13))
    for compression in ("tiff_lzw", "packbits", "jpeg", "tiff_adobe_deflate"):
        save(f"RGB, {compression}", colour, "TIFF", compression=compression)
        save(f"grey, {compression}", grey, "TIFF", compression=compression)
    save("YCbCr, jpeg", colour.convert("YCbCr"), "TIFF", compression="jpeg")
    for compression in ("group3", "group4"):
        save(f"1 bit, {compression}", grey.convert("1"), "TIFF", compression=compression)
    save("big", colour, "TIFF", big_tiff=True)


def pnms():
    for most in (3, 255, 1000, 65535):
        kind = ">u2" if most > 255 else "u1"
        for channels in (1, 3):
            values = RANDOM.integers(0, most + 1, 5 * 3 * channels)
            text = b" ".join(str(value).encode() for value in values)
            add(f"PNM text {most} {channels}", f"P{1 + channels // 3 + 1}\n# size\n5 3\n{most}\n".encode() + text)
            add(
                f"PNM {most} {channels}",
                f"P{5 + channels // 3}\n5 3 # most\n{most}\n".encode() + values.astype(kind).tobytes(),
            )
    add("PNM bits", b"P4\n11 3\n" + noise(6).tobytes())
    add("PNM text bits", b"P1\n5 3\n01101 1 0 0 1 1 # row\n10010")


def gif_blocks(indices):
    """Codes of 9 bits, with so many that clear the table that it never grows."""
    bits = []
    for place, index in enumerate(indices):
        bits += [256] if place % 200 == 0 else []
        bits.append(index)
    number = sum(code << 9 * place for place, code in enumerate([*bits, 257]))
    data = number.to_bytes((9 * (len(bits) + 1) + 7) // 8, "little")
    return (
        b"\x08"
        + b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255))
        + b"\0"
    )


def gif(name, canvas, frame, *, ours=b"", local=b"", transparent=None, interlaced=False):
    def flags(palette):
        return 0x80 | (len(palette) // 3).bit_length() - 2 if palette else 0

    file = b"GIF89a" + struct.pack("<HHBBB", *canvas, flags(ours), 2, 0) + ours
    if transparent is not None:
        file += b"\x21\xf9\x04\x01\0\0" + bytes([transparent]) + b"\0"
    file += b"\x21\xfe\x05hello\0," + struct.pack("<HHHHB", *frame, flags(local) | (0x40 if interlaced else 0)) + local
    add(f"GIF {name}", file + gif_blocks(noise(frame[2] * frame[3]).tolist()) + b";")


def gifs():
    def palette(count):
        return noise(3 * count).tobytes()

    gif("interlaced", (9, 21), (0, 0, 9, 21), ours=palette(256), interlaced=True)
    gif("small frame", (9, 8), (2, 3, 4, 4), ours=palette(256))
    gif("small transparent frame", (9, 8), (2, 3, 4, 4), ours=palette(256), transparent=7)
    gif("frame beyond the canvas", (4, 4), (2, 3, 6, 5), ours=palette(256), local=palette(256))
    gif("few colours", (9, 8), (0, 0, 9, 8), local=palette(16))
    gif("few greys", (9, 8), (0, 0, 9, 8), ours=bytes(i // 3 for i in range(48)))
    gif("no palette", (9, 8), (0, 0, 9, 8))
    colour = Image.fromarray(noise(20, 30, 3)).quantize(64)
    save("LZW", colour, "GIF")
    save("animated", colour, "GIF", save_all=True, append_images=[Image.fromarray(noise(20, 30, 3)).quantize(9)])


def webps():
    y, x = numpy.mgrid[0:23, 0:37]
    smooth = numpy.stack([x * 7 % 256, y * 9 % 256, (x + y) * 4 % 256, (x * y) % 256], -1).astype(numpy.uint8)
    colour, alpha = Image.fromarray(smooth[:, :, :3]), Image.fromarray(smooth)
    save("lossy", colour, "WEBP", quality=60)
    save("lossy with alpha", alpha, "WEBP", quality=60)
    save("lossless", colour, "WEBP", lossless=True)
    save("lossless with alpha", alpha, "WEBP", lossless=True, exact=True)
    save("animated", alpha, "WEBP", save_all=True, append_images=[Image.fromarray(noise(23, 37, 4))])


for make in (webps, bmps, gifs, tiffs, pnms):
    make()
text = ",\n".join(json.dumps(case) for case in CASES)
(HERE / "image_formats.json").write_text(f'{{"pillow": "{PIL.__version__}", "cases": [\n{text}\n]}}\n')
