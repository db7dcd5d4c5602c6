"""PyTorch itself: copy, row selection, dense products by MKL, sparse products by MKL."""


def copy(h):
    torch, count = h.torch, 256 << 18
    x, out = torch.rand(count), torch.empty(count)
    h.measure("torch.copy_", "copy", "256MiB", 8 * count / 1e9, "GB/s", lambda: out.copy_(x))


def gather(h):
    torch, n_table, n_out = h.torch, 1_000_000, 500_000
    index = torch.randint(0, n_table, (n_out,))
    for dim, dtype, name in ((100, torch.float32, "100f32"), (128, torch.float16, "128f16")):
        size = f"{n_out}of{n_table}x{name}"
        x = torch.rand(n_table, dim).to(dtype)
        out = torch.empty(n_out, dim, dtype=dtype)
        moved = n_out * (2 * dim * x.element_size() + 4) / 1e9
        select = lambda: torch.index_select(x, 0, index, out=out)  # noqa: E731
        h.measure("torch.index_select(out=)", "gather", size, moved, "GB/s", select)
        h.measure("torch.index_select", "gather", size, moved, "GB/s", lambda: torch.index_select(x, 0, index))
        h.measure("torch.embedding", "gather", size, moved, "GB/s",
                  lambda: torch.nn.functional.embedding(index, x))
        if dtype == torch.float16:
            wide = torch.empty(n_out, dim)

            def widened():
                select()
                wide.copy_(out)

            h.measure("torch.index_select(out=), copy_", "gather", size + "->f32",
                      n_out * (6 * dim + 4) / 1e9, "GB/s", widened)


def gemm(h):
    torch = h.torch
    for m, k, n, transpose in ((100_000, 100, 256, False), (100_000, 256, 256, False),
                               (256, 100_000, 256, True), (20_000, 512, 512, False)):
        a = torch.rand(k, m).t() if transpose else torch.rand(m, k)
        b, out = torch.rand(k, n), torch.empty(m, n)
        h.measure("torch.mm", "gemm_f32", f"{m}x{k}*{k}x{n}{'(TN)' if transpose else ''}",
                  2e-9 * m * k * n, "GFLOP/s", lambda: torch.mm(a, b, out=out))


def spmm(h):
    torch, rowptr = h.torch, h.array("rowptr")
    degree = rowptr[1:] - rowptr[:-1]
    for reduce in ("sum", "mean"):
        values = torch.ones(h.e)
        if reduce == "mean":
            values = torch.repeat_interleave(1 / degree.clamp(min=1).float(), degree)
        matrix = torch.sparse_csr_tensor(rowptr.int(), h.array("col").int(), values, size=(h.n, h.n))
        # Its own backward pass transposes each time: given both ways, the transpose of a symmetric pattern is
        # another product, which is what a careful user would write.
        backward = matrix
        if reduce == "mean":
            by_source = (1 / degree.clamp(min=1).float())[h.array("col")]
            backward = torch.sparse_csr_tensor(rowptr.int(), h.array("col").int(), by_source, size=(h.n, h.n))
        for dim in map(int, h.options.widths.split(",")):
            x = torch.randn(h.n, dim)
            for work, a in ((f"spmm_{reduce}_fwd", matrix), (f"spmm_{reduce}_bwd", backward)):
                if h.wants(work):
                    h.measure("torch.sparse.mm(MKL)", work, f"{h.size},d={dim}", 2e-9 * h.e * dim, "GFLOP/s",
                              lambda: torch.sparse.mm(a, x))


GROUPS = {"copy": copy, "gather": gather, "gemm": gemm, "spmm": spmm}
