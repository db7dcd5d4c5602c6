"""Writes the graph that everyone is measured on: a folder of .npy files, the same for the same size.

An R-MAT graph (quadrants .57 .19 .19 .05) with shuffled names, both directions of every edge, no self-loops and no
parallel edges; with random features, classes and relations. Batches are of different training vertices each, drawn
from those that have a neighbour: R-MAT leaves many without.
"""
import argparse
import pathlib

import numpy as np

# Logarithm of the number of vertices, and edges drawn a vertex.
SIZES = {"XS": (12, 9.0), "S": (17, 9.0), "M": (20, 16.5)}
FEATURES, CLASSES, RELATIONS, TRAIN_SHARE, BATCH, BATCHES = 100, 47, 8, 0.08, 1024, 100


def draw_edges(rng, scale, count):
    """Both ends of `count` R-MAT edges, from the most significant bit on."""
    ends = np.zeros((2, count), dtype=np.int64)
    for _ in range(scale):
        quadrant = np.searchsorted([0.57, 0.76, 0.95], rng.random(count, dtype=np.float32), side="right")
        ends[0] = 2 * ends[0] + (quadrant >> 1)
        ends[1] = 2 * ends[1] + (quadrant & 1)
    return ends


def make(folder, size, seed=1):
    scale, factor = SIZES[size]
    n, rng = 1 << scale, np.random.default_rng(seed)
    source, destination = rng.permutation(n)[draw_edges(rng, scale, int(n * factor))]
    keep = source != destination
    source, destination = source[keep], destination[keep]
    edges = np.unique(np.concatenate([destination * n + source, source * n + destination]))
    rowptr = np.searchsorted(edges, np.arange(n + 1) * n).astype(np.int64)
    # A small graph has fewer training vertices than a batch: then more of its vertices are.
    linked = np.flatnonzero(np.diff(rowptr))
    train = rng.permutation(linked)[: max(int(TRAIN_SHARE * n), BATCH)]
    batch = min(BATCH, len(train))
    per_epoch = len(train) // batch
    epochs = [rng.permutation(train)[: per_epoch * batch] for _ in range(-(-BATCHES // per_epoch))]
    arrays = {
        "rowptr": rowptr,
        "col": edges % n,
        "x": rng.standard_normal((n, FEATURES), dtype=np.float32),
        "y": rng.integers(0, CLASSES, n),
        "train": np.sort(train),
        "batches": np.concatenate(epochs).reshape(-1, batch)[:BATCHES],
        "etype": rng.integers(0, RELATIONS, len(edges)),
    }
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        # A folder that was left half written has no rowptr.npy, and is made again.
        if name != "rowptr":
            np.save(folder / f"{name}.npy", array)
    np.save(folder / "rowptr.npy", arrays["rowptr"])
    print(f"{folder}: {n:,} vertices, {len(edges):,} edges, {len(train):,} training vertices")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder")
    options.add_argument("--size", choices=SIZES, default="S")
    arguments = options.parse_args()
    make(arguments.folder, arguments.size)
