"""Pillow's antialiased bilinear resize to 224x224, one size after the other.

Each line on standard input, "WIDTH HEIGHT REPEATS", is answered by the CPU seconds of one resize of
an image in memory.
"""

import os
import sys
import time

from PIL import Image

os.sched_setaffinity(0, {int(sys.argv[1])})
for line in sys.stdin:
    width, height, repeats = map(int, line.split())
    image = Image.frombytes("RGB", (width, height), os.urandom(width * height * 3))
    image.resize((224, 224), Image.Resampling.BILINEAR)
    start = time.thread_time()
    for _ in range(repeats):
        image.resize((224, 224), Image.Resampling.BILINEAR)
    print((time.thread_time() - start) / repeats, flush=True)
