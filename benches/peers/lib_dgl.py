"""DGL: samplers, aggregation, SDDMM, GAT, R-GCN, training."""
from harness import FANOUTS, HEADS, RELATIONS, WIDTH


def graph(h, formats=None):
    import dgl

    g = dgl.graph(("csc", (h.array("rowptr"), h.array("col"), h.torch.empty(0, dtype=h.torch.int64))), num_nodes=h.n)
    if formats:
        return g.formats(formats)
    g.create_formats_()
    return g


def loader(h, g, sampler, batches, workers):
    import dgl

    return dgl.dataloading.DataLoader(
        g, batches.reshape(-1), sampler, batch_size=batches.shape[1], shuffle=False, num_workers=workers,
        persistent_workers=workers > 0, use_ddp=False)


def sample(h):
    import dgl

    g, batches = graph(h, ["csc"]), h.array("batches")[:h.options.batches]
    for name, work in (("NeighborSampler", "sample"), ("LaborSampler", "sample_labor0")):
        # Fanouts of DGL begin at the inputs.
        sampler = getattr(dgl.dataloading, name)(FANOUTS[::-1])
        h.sample(f"dgl.{name}", work, lambda: [sampler.sample_blocks(g, seeds) for seeds in batches][:0],
                 lambda: sum(b.num_edges() for seeds in batches for b in sampler.sample_blocks(g, seeds)[2]),
                 len(batches))
        if h.threads > 1:
            several = loader(h, g, sampler, batches, h.threads)
            h.sample(f"dgl.DataLoader({name}, {h.threads} workers)", work, lambda: sum(1 for _ in several),
                     lambda: sum(b.num_edges() for _, _, blocks in several for b in blocks), len(batches))


def spmm(h):
    import dgl.function as fn
    import dgl.ops

    torch = h.torch
    wide = graph(h)
    narrow = wide.int()
    narrow.create_formats_()

    def update_all(reduce):
        def call(x):
            g = wide.local_var()
            g.srcdata["h"] = x
            g.update_all(fn.copy_u("h", "m"), getattr(fn, reduce)("m", "o"))
            return g.dstdata["o"]
        return call

    def ops(reduce):
        call = getattr(dgl.ops, f"copy_u_{reduce}")
        return lambda x: call(narrow, x)

    for reduce in ("sum", "mean"):
        for peer, forward in (("dgl.update_all", update_all(reduce)), ("dgl.ops(int32)", ops(reduce))):
            for dim in map(int, h.options.widths.split(",")):
                size, amount = f"{h.size},d={dim}", 2e-9 * h.e * dim
                x = torch.randn(h.n, dim)
                if h.wants(f"spmm_{reduce}_fwd"):
                    h.measure(peer, f"spmm_{reduce}_fwd", size, amount, "GFLOP/s", lambda: forward(x))
                if h.wants(f"spmm_{reduce}_bwd"):
                    leaf, cotangent = x.requires_grad_(True), torch.randn(h.n, dim)

                    def prepared():
                        leaf.grad = None
                        return forward(leaf)

                    h.measure(peer, f"spmm_{reduce}_bwd", size, amount, "GFLOP/s",
                              lambda out: out.backward(cotangent), setup=prepared)


def sddmm(h):
    import dgl

    torch = h.torch
    for form in ("coo", "csr"):
        g = dgl.graph((h.array("col"), h.destinations()), num_nodes=h.n).int()
        g = g.formats("csr") if form == "csr" else g
        for dim in (d for d in map(int, h.options.widths.split(",")) if d <= 128):
            x, y = torch.randn(h.n, dim), torch.randn(h.n, dim)
            h.measure(f"dgl.u_dot_v({form})", "sddmm_dot", f"{h.size},d={dim}", 2e-9 * h.e * dim, "GFLOP/s",
                      lambda: dgl.ops.u_dot_v(g, x, y))


def gat(h):
    import dgl

    # From pairs: with edges from a CSC the product with values on edges fails in DGL 2.1.
    pairs = dgl.graph((h.array("col"), h.destinations()), num_nodes=h.n)
    for name, g in (("int64", pairs), ("int32", pairs.int())):
        g.create_formats_()
        conv = dgl.nn.GATConv(WIDTH, WIDTH // HEADS, HEADS, allow_zero_in_degree=True)
        h.layer(f"dgl.GATConv({name})", "gat_fwd+bwd", lambda x: conv(g, x), list(conv.parameters()))


def rgcn(h):
    """A mean for each relation, as R-GCN has it: one GraphConv each. DGL's own RelGraphConv sums, and is slower."""
    import dgl

    col, dst, etype = h.array("col"), h.destinations(), h.array("etype")
    edges = {("v", f"r{r}", "v"): (col[etype == r], dst[etype == r]) for r in range(RELATIONS)}
    g = dgl.heterograph(edges, num_nodes_dict={"v": h.n}).int()
    g.create_formats_()
    convs = {f"r{r}": dgl.nn.GraphConv(WIDTH, WIDTH, norm="right", allow_zero_in_degree=True)
             for r in range(RELATIONS)}
    conv = dgl.nn.HeteroGraphConv(convs, aggregate="sum")
    own = h.torch.nn.Linear(WIDTH, WIDTH)
    h.layer("dgl.HeteroGraphConv(GraphConv)", "rgcn_fwd+bwd", lambda x: conv(g, {"v": x})["v"] + own(x),
            [*conv.parameters(), *own.parameters()])


def net(h, model):
    import dgl

    def layer(a, b):
        if model == "sage":
            return dgl.nn.SAGEConv(a, b, "mean")
        return dgl.nn.GraphConv(a, b, norm="both", allow_zero_in_degree=True)

    return h.stack([layer(a, b) for a, b in h.widths()], lambda layer, x, blocks, i: layer(blocks[i], x))


def for_ever(iterable):
    while True:
        yield from iterable


def train(h):
    import dgl

    g, x, y = graph(h, ["csc"]), h.array("x"), h.array("y")
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])
    for model in ("sage", "gcn"):
        work = f"train_{model}"
        if h.wants(work):
            fetch = lambda r: (x[r[0]], y[r[1]], r[2])  # noqa: E731
            serial = (sampler.sample_blocks(g, seeds) for seeds in h.seeds_for_ever())
            h.train("dgl", work, serial, fetch, net(h, model), 10)
            # One process samples ahead.
            ahead = for_ever(loader(h, g, sampler, h.array("batches"), 1))
            h.train("dgl.DataLoader(1 worker)", work, ahead, fetch, net(h, model), 10)


GROUPS = {"sample": sample, "spmm": spmm, "sddmm": sddmm, "gat": gat, "rgcn": rgcn, "train": train}
