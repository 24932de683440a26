"""Device headers compile with NVRTC alone: no host header, no standard library. That keeps them checkable on any machine
and for any architecture, and leaves the door open to compiling at run time.

usage: nvrtc.py NVCC [ROOT]
Each src/kernels/**/*.cuh is compiled for the architecture its name ends in (_sm90a), else for 7.5, 8.0 and 9.0a. What an
architecture lacks is trapped by the headers themselves. libnvrtc is looked for beside nvcc.
"""
import ctypes
import glob
import os
import re
import sys

import common


def load(toolkit):
    for pattern in ("lib64/libnvrtc.so", "lib64/libnvrtc.so.*", "lib/libnvrtc.so.*", "../cuda_nvrtc/lib/libnvrtc.so.*"):
        for path in sorted(glob.glob(os.path.join(toolkit, pattern))):
            return ctypes.CDLL(path)
    return None


def compile_one(nvrtc, root, toolkit, header, arch):
    """The compiler's log if it refused, else None."""
    program = ctypes.c_void_p()
    source = f'#include "{os.path.relpath(header, os.path.join(root, "src"))}"\n'.encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"check.cu", 0, None, None) == 0
    include = os.path.join(toolkit, "include")
    options = [f"--gpu-architecture=sm_{arch}", "--std=c++20", "-default-device", f"-I{root}/src", f"-I{include}", f"-I{include}/cccl",
               f"-DGALVANI_CUDA_NS=sm{arch}", f"-DGALVANI_CUDA_ARCH=sm_{arch}"]
    encoded = [option.encode() for option in options]
    failed = nvrtc.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)) != 0
    log = None
    if failed:
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, text)
        log = text.value.decode(errors="replace")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log


def main():
    nvcc, root = sys.argv[1], os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else ".")
    toolkit = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    nvrtc = load(toolkit)
    if nvrtc is None:
        print(f"COULD-NOT-ANSWER no libnvrtc beside {nvcc}")
        sys.exit(2)
    os.chdir(root)
    headers = [f for f in common.tracked(".cuh") if f.startswith("src/kernels/")]
    if not headers:
        common.finish(["no device header found"], "the device headers")
    problems, count = [], 0
    for header in headers:
        suffix = re.search(r"_sm(\d+[af]?)\.cuh$", header)
        archs = [suffix.group(1)] if suffix and int(re.match(r"\d+", suffix.group(1)).group()) > 80 else ["75", "80", "90a"]
        for arch in archs:
            count += 1
            log = compile_one(nvrtc, root, toolkit, os.path.join(root, header), arch)
            if log is not None:
                lines = [line for line in log.splitlines() if "error" in line][:3] or log.splitlines()[:3]
                problems.append(f"{header} for sm_{arch}: " + "\n    ".join(lines))
    common.finish(problems, f"{len(headers)} device headers, {count} compilations with NVRTC alone")


if __name__ == "__main__":
    main()
