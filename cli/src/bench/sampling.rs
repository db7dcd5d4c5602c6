//! Sampling of whole batches, as in training: one batch per thread on the CPU, one after another on a GPU.

use std::sync::Arc;

use super::Bench;
use super::check::wrong;
use super::row::Amount;
use cohop::Result;
use cohop::device::{Device, Method};
use cohop::graph::Graph;
use cohop::rng::{Dependence, Kappa};
use cohop::sample::{Fanouts, MiniBatch, Sampler, SamplerConfig};
use cohop::train::Pipeline;

/// Fanouts from the seeds outwards.
pub(super) const FANOUTS: [usize; 3] = [15, 10, 5];

pub(super) fn all<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    let (neighbor, labor0) = (Method::NEIGHBOR, Method::LABOR_0);
    let works = [
        ("sample", neighbor, Kappa::INDEPENDENT),
        ("sample_kappa64", neighbor, Kappa::steps(64)?),
        ("sample_labor0", labor0, Kappa::INDEPENDENT),
        ("sample_labor0_kappa64", labor0, Kappa::steps(64)?),
    ];
    for (work, method, kappa) in works {
        if bench.wants(work) {
            sample(bench, work, SamplerConfig { kappa, ..config(method) })?;
        }
    }
    Ok(())
}

pub(super) fn config(method: Method) -> SamplerConfig {
    let fanouts = Fanouts(FANOUTS.to_vec());
    SamplerConfig {
        method,
        fanouts,
        per_relation: false,
        kappa: Kappa::INDEPENDENT,
        dependence: Dependence::default(),
        seed: 0,
        edge_ids: false,
        edge_weights: false,
    }
}

fn sample<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    work: &'static str,
    config: SamplerConfig,
) -> Result<()> {
    let (device, workload, method) = (bench.device, bench.workload, config.method);
    let sampler = Arc::new(Sampler::new(config)?);
    let graph = device.load_graph(&workload.dataset.graph)?;
    let first = sampler.sample(device, &graph, &workload.batches[0], 0)?;
    check(work, device, workload.graph(), method, &first)?;
    drop(first);

    let batches = Arc::new(workload.batches.clone());
    let n_batches = batches.len();
    let workers = if bench.on_host { rayon::current_num_threads() } else { 0 };
    let epoch = || -> Result<u64> {
        let (on, sampler, graph, batches) = (device.clone(), sampler.clone(), graph.clone(), batches.clone());
        let one = move |i: usize| sampler.sample(&on, &graph, &batches[i], i as u64);
        let mut sampled = Pipeline::new(workers, 2 * workers + 1, n_batches, one)?;
        sampled.try_fold(0, |edges, batch| Ok(edges + batch?.n_edges()))
    };
    let edges = epoch()? as f64 / n_batches as f64;
    let amount = Amount { parts: n_batches, edges: Some(edges), ..Amount::new(1.0, "batches/s") };
    bench.time(work, workload.name.clone(), amount, || epoch().map(drop))
}

/// `Ok` if sampled edges are edges of the graph, and rows have as many as the method promises.
fn check<D: Device>(
    work: &str,
    device: &D,
    graph: &Graph,
    method: Method,
    sampled: &MiniBatch<D>,
) -> Result<()> {
    let (mut kept, mut promised) = (0, 0);
    for (block, fanout) in sampled.blocks.iter().rev().zip(FANOUTS) {
        let csr = block.csr();
        let (src, indptr) = (device.download(block.src())?, device.download(csr.indptr())?);
        let indices = device.download(csr.indices())?;
        for (&t, ends) in src.iter().zip(indptr.windows(2)) {
            let sources = indices[ends[0] as usize..ends[1] as usize].iter().map(|&i| src[i as usize]);
            let neighbors = graph.in_neighbors(t);
            if let Some(s) = sources.clone().find(|s| neighbors.binary_search(s).is_err()) {
                return wrong(work, format!("an edge {s} -> {t}"), "edges of the graph");
            }
            let expected = neighbors.len().min(fanout);
            if method == Method::NEIGHBOR && sources.len() != expected {
                return wrong(work, format!("{} in-edges of {t}", sources.len()), expected);
            }
            (kept, promised) = (kept + sources.len(), promised + expected);
        }
    }
    // LABOR keeps as many in expectation; since edges share variates, a batch's sum varies by a few percent.
    let ratio = kept as f64 / promised.max(1) as f64;
    if (0.7..1.3).contains(&ratio) { Ok(()) } else { wrong(work, format!("{kept} edges"), promised) }
}
