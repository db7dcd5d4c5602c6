"""GraphBolt, DGL's newer data pipeline: samplers, training with DGL's layers."""
from harness import FANOUTS
from lib_dgl import for_ever, net


def pipeline(h, batches, kind):
    import dgl.graphbolt as gb

    g = gb.fused_csc_sampling_graph(h.array("rowptr"), h.array("col"))
    items = gb.ItemSet(batches.reshape(-1), names="seed_nodes")
    return getattr(gb.ItemSampler(items, batch_size=batches.shape[1], shuffle=False), kind)(g, FANOUTS[::-1])


def sample(h):
    batches = h.array("batches")[:h.options.batches]
    for kind, work in (("sample_neighbor", "sample"), ("sample_layer_neighbor", "sample_labor0")):
        pipe = pipeline(h, batches, kind)
        h.sample(f"graphbolt.{kind}", work, lambda: sum(1 for _ in pipe),
                 lambda: sum(len(s.sampled_csc.indices) for batch in pipe for s in batch.sampled_subgraphs),
                 len(batches))


def train(h):
    x, y = h.array("x"), h.array("y")
    pipe = pipeline(h, h.array("batches"), "sample_neighbor")
    for model in ("sage", "gcn"):
        if h.wants(f"train_{model}"):
            h.train("graphbolt", f"train_{model}", for_ever(pipe),
                    lambda batch: (x[batch.input_nodes], y[batch.seed_nodes], batch.blocks), net(h, model), 10)


GROUPS = {"sample": sample, "train": train}
