"""make_photos.py FOLDER COUNT: JPEG files that decode as photos do, in FOLDER/photo/NNNN.jpg.

500x375 pixels, one in four upright, 4:2:0, quality drawn from 75 to 95. Luma is noise whose amplitude falls with
frequency as that of photos (1/f^1.15), colours are smoother (1/f^1.6); ellipses of other brightness and colour
bring edges, and a grain of 2 levels is added. Prints the mean size of a file in bytes.
"""

import pathlib
import sys

import numpy as np
from PIL import Image

FIELD = 1024  # side of the noise that pictures are cut from


def photo(rng, height, width):
    frequency = np.hypot(np.fft.fftfreq(FIELD)[:, None], np.fft.rfftfreq(FIELD)[None, :])
    frequency[0, 0] = 1

    def field(power):
        spectrum = rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)
        spectrum /= frequency**power
        spectrum[0, 0] = 0
        plane = np.fft.irfft2(spectrum, (FIELD, FIELD))[:height, :width]
        return (plane - plane.mean()) / plane.std()

    luma, blue, red = field(1.15), field(1.6), field(1.6)
    y, x = np.mgrid[:height, :width]
    for _ in range(12):
        centre, radius = rng.uniform(0, (height, width)), rng.uniform(15, height / 2, 2)
        inside = ((y - centre[0]) / radius[0]) ** 2 + ((x - centre[1]) / radius[1]) ** 2 < 1
        luma[inside] = luma[inside] * rng.uniform(0.3, 1.2) + rng.uniform(-1, 1)
        blue[inside] += rng.uniform(-1, 1)
        red[inside] += rng.uniform(-1, 1)
    luma, blue, red = 120 + 45 * luma, 14 * blue, 14 * red
    rgb = np.stack([luma + 1.402 * red, luma - 0.344 * blue - 0.714 * red, luma + 1.772 * blue], -1)
    rgb += rng.normal(0, 2, (height, width, 1))
    return Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))


def main():
    folder, count = pathlib.Path(sys.argv[1]) / "photo", int(sys.argv[2])
    folder.mkdir()
    rng = np.random.default_rng(1)
    total = 0
    for number in range(count):
        path = folder / f"{number:04}.jpg"
        height, width = (375, 500) if number % 4 else (500, 375)
        image = photo(rng, height, width)
        image.save(path, quality=int(rng.integers(75, 96)), subsampling=2)
        total += path.stat().st_size
    print(total // count)


if __name__ == "__main__":
    main()
