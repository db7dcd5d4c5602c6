"""Measures cohop and its peers side by side: in turn, in rounds, on the same graph, threads and cores.

    benches/peers/install                                  # once: a virtual environment in target/peers
    cargo build --release
    target/peers/bin/python benches/peers/compare.py --json out.json --markdown out.md

Every round runs each library once for each group of works, so that what else the machine does meets all alike. A row's
rate is the median over rounds of the rounds' medians; the best variant of each library counts. Sampling is compared by
edges a second: libraries differ in how many they sample. "quiet" is the share of runs, of cohop or of whom it is compared
with, whichever is less, during which other processes let the machine alone: do not quote rows where it is low. A short
look: --sizes S --rounds 1 --runs 1 --max-seconds 3 --only sample,gemm.
"""
import argparse
import collections
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARIES = ["dgl", "graphbolt", "pyg", "torch"]

# Works of cohop, and the libraries that have them. Those that do not depend on the graph run with the first one.
GROUPS = {
    "copy": (["copy"], ["torch"]),
    "gather": (["gather"], ["torch"]),
    "gemm": (["gemm_f32"], ["torch"]),
    "sample": (["sample"], ["dgl", "graphbolt", "pyg"]),
    "spmm": (["spmm_sum", "spmm_mean"], ["dgl", "pyg", "torch"]),
    "sddmm": (["sddmm_dot"], ["dgl"]),
    "gat": (["gat_fwd+bwd"], ["dgl", "pyg"]),
    "rgcn": (["rgcn_fwd+bwd"], ["dgl", "pyg"]),
    "train": (["train_sage", "train_gcn"], ["dgl", "graphbolt", "pyg"]),
}
WITHOUT_GRAPH = {"copy", "gather", "gemm"}
# Whole-graph layers of the peers take more memory than most machines have beyond S.
SMALL_ONLY = {"gat", "rgcn"}

# (start of the work's name, against whom, the least ratio of rates)
TARGETS = [
    ("gather", "best", 1.3), ("gemm_f32", "best", 0.95),
    ("sample", "best", 3), ("sample_labor0", "best", 5),
    ("spmm_sum", "best", 1.5), ("spmm_mean", "best", 1.5), ("sddmm_dot", "best", 3),
    ("gat_fwd+bwd", "best", 5), ("rgcn_fwd+bwd", "best", 5),
    ("train_sage", "best", 2), ("train_sage", "pyg", 4), ("train_gcn", "best", 2),
]
# The most of the best peer's memory that a layer may take.
MEMORY_TARGETS = {"gat_fwd+bwd": 0.1}


def options():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--cohop", default=ROOT / "target/release/cohop", type=pathlib.Path, help="the program")
    ap.add_argument("--data", default=ROOT / "target/peers/data", type=pathlib.Path,
                    help="folder of graphs; what is missing is made")
    ap.add_argument("--sizes", default="S,M")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                    help="threads, and cores, of everyone; neighbour sampling is measured on one thread besides")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--runs", type=int, default=3, help="runs of each work in a round")
    ap.add_argument("--max-seconds", type=float, default=8, help="stop a work's runs in a round after this time")
    ap.add_argument("--only", default="", help=f"comma-separated groups of {' '.join(GROUPS)}")
    ap.add_argument("--peers", default=",".join(LIBRARIES))
    ap.add_argument("--json", type=pathlib.Path, metavar="FILE", help="all rows, and the machine")
    ap.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="the table")
    ap.add_argument("--from", dest="given", type=pathlib.Path, metavar="FILE", help="the rows of an earlier --json")
    args = ap.parse_args()
    args.only = [g for g in args.only.split(",") if g] or list(GROUPS)
    args.peers = [p for p in args.peers.split(",") if p]
    for name, values, known in (("--only", args.only, GROUPS), ("--peers", args.peers, LIBRARIES)):
        for value in values:
            if value not in known:
                ap.error(f"{name} is {value}: expected some of {' '.join(known)}")
    if not 1 <= args.threads <= len(os.sched_getaffinity(0)):
        ap.error(f"--threads is {args.threads}: expected 1 to {len(os.sched_getaffinity(0))}")
    if not args.given and not os.access(args.cohop, os.X_OK):
        ap.error(f"--cohop is {args.cohop}, which is no program: run `cargo build --release` first")
    return args


def environment(threads):
    """Fixed thread counts; and memory stays with the process, which makes peers that allocate much faster faster."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    return {
        **os.environ, **dict.fromkeys(names, str(threads)), "DGLBACKEND": "pytorch",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 36), "MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_MMAP_MAX_": "0",
    }


def rows_of(command, threads):
    """The JSON lines that a command prints, run on as many cores as threads."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
        env=environment(threads), preexec_fn=lambda: os.sched_setaffinity(0, cores))
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        rows.append({"error": last[:300]})
    return rows


def plan(args):
    """(size, threads, group, works), in order."""
    for i, size in enumerate(args.sizes.split(",")):
        for group in args.only:
            if group in WITHOUT_GRAPH and i > 0 or group in SMALL_ONLY and size not in ("XS", "S"):
                continue
            yield size, args.threads, group, GROUPS[group][0]
        if "sample" in args.only and args.threads > 1:
            yield size, 1, "sample", ["sample"]


def commands(args, size, threads, group, works):
    """(library, command), cohop first."""
    folder = args.data / size
    limits = ["--runs", args.runs, "--max-seconds", args.max_seconds, "--threads", threads]
    large = size == "M"
    amount = ["--widths", "128" if large else "64,128,256", "--batches", 30 if large else 100]
    # On one thread LABOR is not asked for, but its name contains the other's.
    yield "cohop", [args.cohop, "bench", "--json", "--quiet", "--data", folder, "--only", ",".join(works),
                    *amount, *limits]
    for library in GROUPS[group][1]:
        if library in args.peers:
            yield library, [sys.executable, HERE / "peer.py", library, group, "--data", folder, *amount, *limits]


def measure(args, record):
    """Adds rows to the record, and writes it after each command: a run that is stopped loses nothing."""
    rows, steps = record["rows"], list(plan(args))
    for size in args.sizes.split(","):
        if not (args.data / size / "rowptr.npy").exists():
            subprocess.run([sys.executable, HERE / "make_graph.py", args.data / size, "--size", size], check=True)
    for turn in range(args.rounds):
        for size, threads, group, works in steps:
            for library, command in commands(args, size, threads, group, works):
                say(f"round {turn + 1}/{args.rounds}  {size}  {threads} threads  {group}  {library}")
                for row in rows_of(command, threads):
                    rows.append({"library": library, "round": turn, "group": group, "threads": threads, **row})
                if args.json:
                    args.json.write_text(json.dumps(record, indent=1))
    say("")


def say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def machine():
    def first(path, key):
        try:
            lines = pathlib.Path(path).read_text().splitlines()
        except OSError:
            return None
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), None)

    def version(package):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    packages = ("torch", "dgl", "torch-geometric", "torch-sparse", "pyg-lib", "numpy")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                            check=False).stdout.strip()
    return {
        "date": datetime.date.today().isoformat(), "processor": first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)), "memory": first("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "python": platform.python_version(), "cohop_commit": commit,
        "versions": {p: version(p) for p in packages},
    }


def summary(rows):
    """{(work, size, threads): {peer: {"library", "rate", "unit", "spread", "peak_bytes"}}}, over all rounds."""
    several = collections.defaultdict(list)
    for row in rows:
        if "seconds_median" in row:
            several[row["work"], row["size"], row["threads"], row["peer"]].append(row)
    table = collections.defaultdict(dict)
    for (work, size, threads, peer), found in several.items():
        by_edges = work.startswith("sample")
        rates = [r["edges_per_second"] / 1e6 if by_edges else r["throughput"] for r in found]
        peaks = [r["peak_bytes"] for r in found if r.get("peak_bytes")]
        table[work, size, threads][peer] = {
            "library": found[0]["library"], "rate": statistics.median(rates),
            "unit": "M edges/s" if by_edges else found[0]["unit"],
            "spread": (max(rates) - min(rates)) / statistics.median(rates),
            "quiet": sum(r["quiet_runs"] for r in found) / max(1, sum(r["all_runs"] for r in found)),
            "peak_bytes": statistics.median(peaks) if peaks else None,
        }
    return table


def targets(work, threads):
    exact = [t for t in TARGETS if t[0] == work]
    found = exact or [t for t in TARGETS if work.startswith(t[0])]
    return [(against, least) for _, against, least in found] or [("best", None)]


def comparison(rows):
    """Lines of the table."""
    head = ["work", "size", "threads", "unit", "cohop", *LIBRARIES, "against", "ratio", "target", "reached", "quiet"]
    lines = []
    for (work, size, threads), peers in summary(rows).items():
        best = {library: max((p["rate"] for p in peers.values() if p["library"] == library), default=None)
                for library in ["cohop", *LIBRARIES]}
        others = {library: best[library] for library in LIBRARIES if best[library]}
        if best["cohop"] is None or not others:
            continue
        unit = next(p["unit"] for p in peers.values() if p["library"] == "cohop")
        cells = [work, size, threads, unit, *(number(best[library]) for library in ["cohop", *LIBRARIES])]
        for against, least in targets(work, threads):
            rival = max(others, key=others.get) if against == "best" else against
            if rival not in others:
                continue
            ratio = best["cohop"] / others[rival]
            quiet = min(max((p["rate"], p["quiet"]) for p in peers.values() if p["library"] == library)[1]
                        for library in ("cohop", rival))
            lines.append([*cells, rival, f"{ratio:.2f}", f">= {least}" if least else "-",
                          "-" if least is None else "yes" if ratio >= least else "NO", f"{100 * quiet:.0f} %"])
        if work in MEMORY_TARGETS:
            lines += memory_line(work, size, threads, peers)
    return head, lines


def memory_line(work, size, threads, peers):
    least = {library: min((p["peak_bytes"] for p in peers.values() if p["library"] == library and p["peak_bytes"]),
                          default=None) for library in ["cohop", *LIBRARIES]}
    others = {library: least[library] for library in LIBRARIES if least[library]}
    if not least["cohop"] or not others:
        return []
    rival, limit = min(others, key=others.get), MEMORY_TARGETS[work]
    ratio = least["cohop"] / others[rival]
    cells = [number(least[library] / 2**20 if least[library] else None) for library in ["cohop", *LIBRARIES]]
    return [[f"{work}, memory", size, threads, "MiB", *cells, rival, f"{ratio:.3f}", f"<= {limit}",
             "yes" if ratio <= limit else "NO", "-"]]


def number(value):
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def text(head, lines):
    rows = [[str(cell) for cell in row] for row in [head, *lines]]
    widths = [max(len(row[c]) for row in rows) for c in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows)


def markdown(head, lines, about):
    rows = [head, ["---"] * len(head), *lines]
    table = "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)
    versions = ", ".join(f"{p} {v}" for p, v in about["versions"].items() if v)
    return (f"{about['date']}, {about['processor']}, {about['cores']} cores, {about['memory']}, {about['system']}; "
            f"cohop {about['cohop_commit']}; {versions}.\n\n{table}\n")


def main():
    args = options()
    if args.given:
        record = json.loads(args.given.read_text())
    else:
        record = {"machine": machine(), "rows": []}
        try:
            measure(args, record)
        except KeyboardInterrupt:
            say("stopped: what follows is of the rows so far")
    head, lines = comparison(record["rows"])
    print(text(head, lines))
    for row in record["rows"]:
        if "error" in row and row["round"] == 0:
            print("failed:", row.get("peer", row["library"]), row.get("work", row["group"]), row["error"],
                  file=sys.stderr)
    if args.markdown:
        args.markdown.write_text(markdown(head, lines, record["machine"]))


if __name__ == "__main__":
    main()
