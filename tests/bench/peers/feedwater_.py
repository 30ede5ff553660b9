"""Feedwater's consumer: further arguments are the daemon's address, its process, the pipeline."""

import sys

from common import arguments, measure

import feedwater

arguments()
address, daemon, pipeline = sys.argv[4:]
loader = feedwater.Loader(pipeline, address=address, output="numpy")
measure(lambda: (len(batch[-1]) for batch in loader), also=int(daemon))
loader.close()
