mod cost;
mod kappa;
mod modes;
mod work;

use crate::device::{LaborIterations, Method};
use crate::rng::Kappa;
use crate::sample::{Fanouts, SamplerConfig};

/// Those whose work the studies compare.
const METHODS: [Method; 4] = [
    super::NEIGHBOR,
    super::LABOR_0,
    Method::Labor { iterations: LaborIterations::Converged, fixed_size: false, layer_dependent: false },
    Method::Walk { walks: 6, length: 3, restart: 0.5 },
];

fn sampler(method: Method, fanouts: &Fanouts, kappa: Kappa, seed: u64) -> SamplerConfig {
    SamplerConfig { method, fanouts: fanouts.clone(), per_relation: false, kappa, seed, edge_ids: false }
}
