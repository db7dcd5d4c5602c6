mod cost;
mod inference;
mod kappa;
mod layer_work;
mod memory;
mod modes;
mod p3;
mod step_seconds;
mod work;

use crate::device::Method;
use crate::rng::Kappa;
use crate::sample::{Fanouts, SamplerConfig};

/// Those whose work the studies compare.
const METHODS: [Method; 4] = [
    Method::NEIGHBOR,
    Method::LABOR_0,
    Method::LABOR_STAR,
    Method::Walk { walks: 6, length: 3, restart: 0.5 },
];

fn sampler(method: Method, fanouts: &Fanouts, kappa: Kappa, seed: u64) -> SamplerConfig {
    let fanouts = fanouts.clone();
    SamplerConfig { method, fanouts, kappa, seed, ..SamplerConfig::default() }
}
