"""Measures one group of works with one library and prints a JSON line for each; `compare.py` runs it.

    python peer.py dgl sample --data target/peers/data/S --threads 2
"""
import argparse
import importlib
import os

LIBRARIES = ("torch", "dgl", "graphbolt", "pyg")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("library", choices=LIBRARIES)
    ap.add_argument("group")
    ap.add_argument("--data", required=True, help="folder written by make_graph.py")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--runs", type=int, default=3)
    ap.add_argument("--warmup", type=int, default=1)
    ap.add_argument("--max-seconds", type=float, default=10, help="stop a series once it has taken this long")
    ap.add_argument("--batches", type=int, default=100)
    ap.add_argument("--widths", default="64,128,256")
    ap.add_argument("--only", default="", help="comma-separated parts of works' names")
    options = ap.parse_args()
    from harness import Harness

    harness = Harness(options)
    try:
        groups = importlib.import_module(f"lib_{options.library}").GROUPS
        groups[options.group](harness)
    except Exception as error:  # noqa: BLE001 - a library that is not installed is a row too
        harness.failed(options.library, options.group, harness.size, error)


if __name__ == "__main__":
    main()
