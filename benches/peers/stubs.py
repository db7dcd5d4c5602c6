"""Lets a CUDA build of torch load where the CUDA libraries are not installed.

torch's libraries name CUDA ones (cuBLAS, cuDNN, NCCL, …) that must be there when they are loaded, although
nothing of them is called on the CPU. This writes one library for each that is missing, in torch's own
folder, which defines the wanted functions and does nothing.
"""
import collections
import pathlib
import re
import subprocess
import sysconfig
import tempfile

# The functions of the libraries that the virtual environment lacks, by how their names begin.
FUNCTION = re.compile(r"(cublas|cudnn|cufft|cufile|curand|cusolver|cusparse|nccl|nvjitlink|nvrtc)", re.IGNORECASE)
# Libraries that the environment has: torch's own and those of the small CUDA wheels.
PRESENT = re.compile(r"lib(c10|torch|cudart|cupti|nvToolsExt)")


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


def wanted(folder):
    """(names of missing libraries, {version: functions}) that the libraries in the folder ask for."""
    files = [f for f in folder.iterdir() if ".so" in f.name and not f.is_symlink()]
    present = {f.name for f in files}
    missing, functions = set(), collections.defaultdict(set)
    for file in files:
        for name in re.findall(r"\(NEEDED\).*\[(lib(?:cu|nccl|nv).*)\]", readelf("-d", file)):
            if name not in present and not PRESENT.match(name):
                missing.add(name)
        for line in readelf("--dyn-syms", file).splitlines():
            fields = line.split()
            if "UND" in fields and len(fields) >= 8 and FUNCTION.match(fields[7]):
                name, _, version = fields[7].partition("@")
                functions[version.strip("@")].add(name)
    return missing, functions


def build(path, functions, work):
    """A library at `path` with the functions that carry no version, and those of the version it is named after."""
    plain, versioned = functions.get("", set()), functions.get(path.name, set())
    source, exports = work / "stub.c", work / "stub.map"
    source.write_text("".join(f"int {f}(void) {{ return 1; }}\n" for f in sorted(plain | versioned)))
    command = ["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", "-o", path, source]
    if versioned:
        exports.write_text(f"{path.name} {{ global: {' '.join(f + ';' for f in sorted(versioned))} }};\n")
        command.append(f"-Wl,--version-script={exports}")
    subprocess.run(command, check=True)


def main():
    folder = pathlib.Path(sysconfig.get_paths()["platlib"]) / "torch" / "lib"
    missing, functions = wanted(folder)
    with tempfile.TemporaryDirectory() as work:
        for name in sorted(missing):
            build(folder / name, functions, pathlib.Path(work))
    print("stubs:", " ".join(sorted(missing)) or "none needed")


if __name__ == "__main__":
    main()
