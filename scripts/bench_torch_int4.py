#!/usr/bin/env python3
"""Times torch's 4-bit product (_weight_int4pack_mm, "tinygemm") and its bf16 product (cuBLAS) beside `galvani bench
--kernels`: the same shapes, random data, weights rotated past five times the L2, CUDA graph replays, medians.

usage: bench_torch_int4.py [NxK ...]      needs torch with CUDA (2.4 or newer)
"""
import statistics
import sys

import torch

GROUP, LAUNCHES, REPLAYS = 64, 40, 10


def timed(launch, copies):
    """Median microseconds of one of at least LAUNCHES launches in one graph."""
    count = max(LAUNCHES, copies)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            launch(i % copies)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(count):
                launch(i % copies)
        samples = []
        for _ in range(REPLAYS + 2):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record(stream)
            graph.replay()
            stop.record(stream)
            stop.synchronize()
            samples.append(1e3 * start.elapsed_time(stop) / count)
    return statistics.median(samples[2:])


def copies_for(size):
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, min(400, 5 * l2 // size + 2))


def main():
    shapes = [tuple(map(int, s.split("x"))) for s in sys.argv[1:]] or [(28672, 8192), (5120, 17408), (4096, 4096)]
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    print("| N × K | M | torch int4 g64, us (GB/s) | torch bf16 (cuBLAS), us |\n|---|---|---|---|")
    for n, k in shapes:
        size = n * k // 2 + n * (k // GROUP) * 4
        copies = copies_for(size)
        codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        packed = [torch.ops.aten._convert_weight_to_int4pack(codes, 8) for _ in range(copies)]
        scales = [(torch.rand(k // GROUP, n, 2, device="cuda") * 0.01).bfloat16() for _ in range(copies)]
        dense_copies = copies_for(n * k * 2)
        dense = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(dense_copies)]
        for m in (1, 8, 16, 64):
            x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
            int4 = timed(lambda i: torch.ops.aten._weight_int4pack_mm(x, packed[i], GROUP, scales[i]), copies)
            bf16 = timed(lambda i: x @ dense[i].t(), dense_copies)
            print(f"| {n}×{k} | {m} | {int4:.1f} ({size / int4 * 1e-3:.0f}) | {bf16:.1f} |", flush=True)
        del packed, scales, dense
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
