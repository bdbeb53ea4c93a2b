"""ffcv_data.py FOLDER WORKERS SECONDS random|exact: images a second from FFCV's Loader.

The pictures of FOLDER are first written into FFCV's own file, as the JPEG files that they are; then RandomResizedCrop
to 224, or its centre crop of the same share as Resize(256) and CenterCrop(224), to batches of 64 uint8 arrays. Its resize
is OpenCV's INTER_AREA, not Pillow's. Writing the file, compiling and the first batches are not counted.
"""

import sys
import tempfile
import time

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter
from torchvision.datasets import ImageFolder

BATCH = 64


def main():
    folder, workers, seconds, mode = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    if mode == "random":
        decoder = RandomResizedCropRGBImageDecoder((224, 224))
    else:
        decoder = CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)
    with tempfile.NamedTemporaryFile(suffix=".beton") as file:
        fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
        DatasetWriter(file.name, fields, num_workers=2).from_indexed_dataset(ImageFolder(folder))
        pipelines = {"image": [decoder, ToTensor()], "label": [IntDecoder(), ToTensor()]}
        loader = Loader(file.name, BATCH, num_workers=workers, order=OrderOption.RANDOM, os_cache=True,
                        pipelines=pipelines, drop_last=True)
        for _ in loader:  # compiles
            pass
        begin, images = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            for batch in loader:
                images += len(batch[0])
        print(f"{images / (time.perf_counter() - begin):.1f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
