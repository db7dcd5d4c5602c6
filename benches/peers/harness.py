"""What the libraries' measurements share: the graph, the protocol of timing, and the rows.

Imported before torch, whose thread pools read the environment when they start.
"""
import ctypes
import gc
import json
import os
import pathlib
import statistics
import time
import warnings

import numpy as np
import psutil

QUIET_CORES = 0.15
FEW = 3
MOST_TRIES = 3
WIDTH, HEADS, RELATIONS, FANOUTS, HIDDEN, CLASSES = 128, 8, 8, [15, 10, 5], 256, 47


class Watch:
    """How many cores other processes keep busy (Linux; 0 elsewhere)."""

    def __init__(self):
        self.wall, self.machine, self.own = self.read()

    @staticmethod
    def read():
        # A library's worker processes are its own, too.
        own = 0.0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                own += sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                pass
        try:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(
                int, pathlib.Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
            machine = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        except OSError:
            machine = own
        return time.perf_counter(), machine, own

    def other_cores(self):
        wall, machine, own = self.read()
        both_late = 2 / os.sysconf("SC_CLK_TCK")
        return max(0.0, machine - self.machine - (own - self.own) - both_late) / max(wall - self.wall, 1e-9)


class PeakMemory:
    """Bytes by which the process's resident memory has grown at most (Linux)."""

    def __init__(self):
        # Free memory that the process has kept would hide what is needed now.
        gc.collect()
        try:
            ctypes.CDLL(None).malloc_trim(0)
            pathlib.Path("/proc/self/clear_refs").write_text("5")
            self.before = self.read("VmRSS")
        except (OSError, AttributeError):
            self.before = None

    @staticmethod
    def read(key):
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def bytes(self):
        return None if self.before is None else max(0, self.read("VmHWM") - self.before)


class Harness:
    """One process's options, graph and rows."""

    def __init__(self, options):
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(options.threads)
        os.environ.setdefault("DGLBACKEND", "pytorch")
        warnings.filterwarnings("ignore")
        import torch

        torch.set_num_threads(options.threads)
        torch.manual_seed(0)
        self.options, self.torch, self.threads = options, torch, options.threads
        self.folder = pathlib.Path(options.data)
        self.size = self.folder.name
        self.arrays = {}

    def array(self, name):
        """A tensor of the graph's folder."""
        if name not in self.arrays:
            self.arrays[name] = self.torch.from_numpy(np.load(self.folder / f"{name}.npy"))
        return self.arrays[name]

    @property
    def n(self):
        return len(self.array("rowptr")) - 1

    @property
    def e(self):
        return len(self.array("col"))

    def destinations(self):
        rowptr = self.array("rowptr")
        return self.torch.repeat_interleave(self.torch.arange(self.n), rowptr[1:] - rowptr[:-1])

    def wants(self, work):
        return not self.options.only or any(part in work for part in self.options.only.split(","))

    def measure(self, peer, work, size, amount, unit, run, setup=None, parts=1, edges=None,
                is_warm=False):
        """Times run(), or run(setup()) without the setup, and prints the row. A failure is a row too."""
        try:
            row = self.timed(run, setup, parts, is_warm)
        except Exception as error:  # noqa: BLE001 - whatever a library does wrong, the others go on
            self.failed(peer, work, size, error)
            return
        median = row["seconds_median"]
        row.update(throughput=amount / median, unit=unit)
        if edges is not None:
            row.update(edges_per_batch=edges, edges_per_second=edges / median)
        self.emit(peer, work, size, row)

    def timed(self, run, setup, parts, is_warm):
        def call():
            given = (setup(),) if setup else ()
            watch, start = Watch(), time.perf_counter()
            run(*given)
            return time.perf_counter() - start, watch.other_cores()

        begin, peak_bytes = time.perf_counter(), None
        if not is_warm:
            memory = PeakMemory()
            call()
            peak_bytes = memory.bytes()
        for _ in range(self.options.warmup - 1):
            call()
        wanted, runs = self.options.runs, []
        while len(runs) < MOST_TRIES * wanted:
            runs.append(call())
            quiet = [seconds for seconds, others in runs if others <= QUIET_CORES]
            if len(quiet) >= wanted or time.perf_counter() - begin > self.options.max_seconds:
                break
        kept = quiet if len(quiet) >= min(FEW, wanted) else [seconds for seconds, _ in runs]
        kept = [seconds / parts for seconds in kept]
        return {
            "seconds_median": statistics.median(kept), "seconds_min": min(kept), "seconds_max": max(kept),
            "runs": len(kept), "quiet_runs": len(quiet), "all_runs": len(runs),
            "other_cores": statistics.median(others for _, others in runs), "peak_bytes": peak_bytes,
        }

    def failed(self, peer, work, size, error):
        text = (str(error).splitlines() or [""])[0]
        self.emit(peer, work, size, {"error": f"{type(error).__name__}: {text}"[:300]})

    def emit(self, peer, work, size, row):
        print(json.dumps({"peer": peer, "work": work, "size": size, "threads": self.threads, **row}), flush=True)

    def sample(self, peer, work, sample_all, count, n_batches):
        """sample_all() samples all batches; count() says how many edges they have together."""
        if not self.wants(work):
            return
        try:
            edges = count() / n_batches
        except Exception as error:  # noqa: BLE001
            self.failed(peer, work, self.size, error)
            return
        self.measure(peer, work, self.size, 1, "batches/s", sample_all, parts=n_batches, edges=edges,
                     is_warm=True)

    def layer(self, peer, work, call, parameters):
        """One layer on the whole graph, forward and backward to its input and its parameters."""
        torch = self.torch
        x = torch.randn(self.n, WIDTH, requires_grad=True)
        cotangent = torch.randn(self.n, WIDTH)

        def both():
            for leaf in [x, *parameters]:
                leaf.grad = None
            call(x).reshape(self.n, -1).backward(cotangent)

        self.measure(peer, work, f"{self.size},d={WIDTH}", self.e / 1e6, "M edges/s", both)

    def train(self, peer, work, stream, fetch, net, batches_a_run):
        """stream yields samples for ever; fetch(sample) = (rows, labels, blocks); net(rows, blocks) = scores."""
        torch = self.torch
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
        net.train()

        def run():
            for _ in range(batches_a_run):
                rows, labels, blocks = fetch(next(stream))
                optimizer.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(net(rows, blocks), labels).backward()
                optimizer.step()

        self.measure(peer, work, self.size, 1, "batches/s", run, parts=batches_a_run)

    def seeds_for_ever(self):
        batches = self.array("batches")
        while True:
            yield from batches

    def stack(self, layers, call):
        """A network of layers with ReLU between; call(layer, h, blocks, i) applies one."""
        torch = self.torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.ModuleList(layers)

            def forward(self, h, blocks):
                for i, layer in enumerate(self.layers):
                    h = call(layer, torch.relu(h) if i else h, blocks, i)
                return h

        return Net()

    def widths(self):
        """Input and output width of each layer."""
        dims = [self.array("x").shape[1]] + [HIDDEN] * (len(FANOUTS) - 1) + [CLASSES]
        return list(zip(dims, dims[1:]))
