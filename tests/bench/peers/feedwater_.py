"""Feedwater's consumer: the daemon's address is the fourth argument, the pipeline the fifth."""

import sys

from common import arguments, measure

import feedwater

arguments()
loader = feedwater.Loader(sys.argv[5], address=sys.argv[4], output="numpy")
measure(lambda: (len(label) for _, label in loader))
loader.close()
