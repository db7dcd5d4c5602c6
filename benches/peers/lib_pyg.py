"""PyTorch Geometric with torch-sparse: samplers, aggregation, GAT, R-GCN, training.

pyg-lib, its faster backend, is on no package index: these figures are PyG's without it.
"""
from harness import FANOUTS, HEADS, RELATIONS, WIDTH


def adjacency(h, value=None):
    from torch_sparse import SparseTensor

    a = SparseTensor(rowptr=h.array("rowptr"), col=h.array("col"), value=value, sparse_sizes=(h.n, h.n),
                     is_sorted=True, trust_data=True)
    a.storage.row()
    return a


def neighbor_sampler(h):
    from torch_geometric.data import Data
    from torch_geometric.sampler import NeighborSampler

    return NeighborSampler(Data(num_nodes=h.n, adj_t=adjacency(h)), num_neighbors=FANOUTS)


def sample(h):
    from torch_geometric.loader import NeighborLoader, NeighborSampler
    from torch_geometric.data import Data
    from torch_geometric.sampler import NodeSamplerInput

    # A fifth of the batches: it is slower by so much.
    batches = h.array("batches")[:max(1, h.options.batches // 5)]
    old = NeighborSampler(adjacency(h), sizes=FANOUTS, batch_size=batches.shape[1])
    h.sample("pyg.NeighborSampler", "sample", lambda: [old.sample(seeds) for seeds in batches][:0],
             lambda: sum(a.adj_t.nnz() for seeds in batches for a in old.sample(seeds)[2]), len(batches))
    new = neighbor_sampler(h)
    one = lambda seeds: new.sample_from_nodes(NodeSamplerInput(None, seeds))  # noqa: E731
    h.sample("pyg.NeighborLoader", "sample", lambda: [one(seeds) for seeds in batches][:0],
             lambda: sum(len(one(seeds).row) for seeds in batches), len(batches))
    if h.threads > 1:
        several = NeighborLoader(Data(num_nodes=h.n, adj_t=adjacency(h)), num_neighbors=FANOUTS,
                                 input_nodes=batches.reshape(-1), batch_size=batches.shape[1],
                                 num_workers=h.threads, persistent_workers=True)
        h.sample(f"pyg.NeighborLoader({h.threads} workers)", "sample", lambda: sum(1 for _ in several),
                 lambda: sum(batch.adj_t.nnz() for batch in several), len(batches))


def spmm(h):
    from torch_sparse import matmul

    torch, a = h.torch, adjacency(h)
    a.fill_cache_()
    for reduce in ("sum", "mean"):
        for dim in map(int, h.options.widths.split(",")):
            size, amount = f"{h.size},d={dim}", 2e-9 * h.e * dim
            x = torch.randn(h.n, dim)
            if h.wants(f"spmm_{reduce}_fwd"):
                h.measure("torch_sparse.matmul", f"spmm_{reduce}_fwd", size, amount, "GFLOP/s",
                          lambda: matmul(a, x, reduce=reduce))
            if h.wants(f"spmm_{reduce}_bwd"):
                leaf, cotangent = x.requires_grad_(True), torch.randn(h.n, dim)

                def prepared():
                    leaf.grad = None
                    return matmul(a, leaf, reduce=reduce)

                h.measure("torch_sparse.matmul", f"spmm_{reduce}_bwd", size, amount, "GFLOP/s",
                          lambda out: out.backward(cotangent), setup=prepared)


def gat(h):
    from torch_geometric.nn import GATConv

    conv = GATConv(WIDTH, WIDTH // HEADS, heads=HEADS, add_self_loops=False)
    edges = h.torch.stack([h.array("col"), h.destinations()])
    h.layer("pyg.GATConv", "gat_fwd+bwd", lambda x: conv(x, edges), list(conv.parameters()))


def rgcn(h):
    from torch_geometric.nn import RGCNConv

    conv, edges = RGCNConv(WIDTH, WIDTH, RELATIONS), h.torch.stack([h.array("col"), h.destinations()])
    try:
        a = adjacency(h, h.array("etype"))
    except ImportError:
        h.layer("pyg.RGCNConv(edge_index)", "rgcn_fwd+bwd", lambda x: conv(x, edges, h.array("etype")),
                list(conv.parameters()))
        return
    h.layer("pyg.RGCNConv(SparseTensor)", "rgcn_fwd+bwd", lambda x: conv(x, a), list(conv.parameters()))


def train(h):
    from torch_geometric import nn
    from torch_geometric.loader import NeighborSampler
    from torch_geometric.sampler import NodeSamplerInput
    from torch_geometric.utils import trim_to_layer

    x, y, n_seeds = h.array("x"), h.array("y"), h.array("batches").shape[1]
    new = neighbor_sampler(h)
    for model, kind in (("sage", nn.SAGEConv), ("gcn", nn.GCNConv)):
        work = f"train_{model}"
        if not h.wants(work):
            continue

        class Trimmed(h.torch.nn.Module):
            """Each layer on the part of the sampled tree that the rest needs."""

            def __init__(self):
                super().__init__()
                self.layers = h.torch.nn.ModuleList([kind(a, b) for a, b in h.widths()])

            def forward(self, rows, sampled):
                edges, nodes_at, edges_at = sampled
                for i, layer in enumerate(self.layers):
                    if nodes_at is not None:
                        rows, edges, _ = trim_to_layer(i, nodes_at, edges_at, rows, edges)
                    rows = layer(h.torch.relu(rows) if i else rows, edges)
                return rows[:n_seeds]

        stream = (new.sample_from_nodes(NodeSamplerInput(None, seeds)) for seeds in h.seeds_for_ever())
        h.train("pyg.NeighborLoader", work, stream,
                lambda r: (x[r.node], y[r.node[:n_seeds]],
                           (h.torch.stack([r.row, r.col]), r.num_sampled_nodes, r.num_sampled_edges)),
                Trimmed(), 5)
    if h.wants("train_sage"):
        # GCNConv takes no blocks of two sides.
        old = NeighborSampler(adjacency(h), sizes=FANOUTS, batch_size=n_seeds)
        net = h.stack([nn.SAGEConv(a, b) for a, b in h.widths()],
                      lambda layer, rows, adjs, i: layer((rows, rows[:adjs[i].size(0)]), adjs[i]))
        h.train("pyg.NeighborSampler", "train_sage", (old.sample(seeds) for seeds in h.seeds_for_ever()),
                lambda r: (x[r[1]], y[r[1][:r[0]]], [a.adj_t.set_value(None) for a in r[2]]), net, 5)


GROUPS = {"sample": sample, "spmm": spmm, "gat": gat, "rgcn": rgcn, "train": train}
