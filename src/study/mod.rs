//! The experiments of Cooperative Minibatching (Balın, LaSalle & Çatalyürek, TMLR 2025) as programs.
//!
//! * [`work()`]: size of a batch's neighbourhoods by number of seeds (theorems 3.1 and 3.2, figure 2);
//! * [`kappa()`]: misses of the feature cache by κ (section 3.2, figure 4);
//! * [`convergence()`]: validation accuracy and macro F1 against epochs by κ, over several random seeds;
//! * [`modes()`]: work of P processing elements, independent and cooperative, on the same global batch (section 3.1);
//! * [`cost()`]: time of that work on a machine with given bandwidths, by a model; [`predict_model`] with the work of
//!   GCN's, GAT's and other layers ([`layer_work()`]), and with the first layer shared as in P³;
//! * [`memory()`]: memory of each processing element by what holds it, in both modes;
//! * [`step_seconds()`]: measured time of a training step in both modes, beside what that model predicts;
//! * [`inference()`]: accuracy and time of sampled inference by fanout and degree (SALIENT, MLSys 2022).
//!
//! All but [`convergence()`], [`step_seconds()`] and [`inference()`] only sample and count: counts are exact, the same
//! on every machine.
//!
//! ```
//! use cohop::graph::Rmat;
//! use cohop::study::{WorkConfig, work};
//! let graph = Rmat::graph500(8, 8, 1).generate()?.into();
//! let config = WorkConfig { batch_sizes: vec![16, 64], ..WorkConfig::default() };
//! let rows = work(&graph, &(0..256).collect::<Vec<_>>(), &config, &mut ())?;
//! // The larger batch has less work per seed.
//! assert!(rows[1].work_per_seed.mean < rows[0].work_per_seed.mean);
//! # Ok::<(), cohop::Error>(())
//! ```

mod both_modes;
mod convergence;
mod cost;
mod estimate;
mod inference;
mod kappa;
mod kept;
pub mod layer_work;
mod machine;
pub mod memory;
mod model_cost;
mod modes;
pub mod p3;
mod parameters;
mod seeds;
mod sizes;
mod step_seconds;
mod work;

pub use convergence::{ConvergenceConfig, ConvergenceRow, Runs, convergence};
pub use cost::{CostConfig, CostRow, CostSummary, Stages, cost, predict, summarize};
pub use estimate::{Estimate, Spread};
pub use inference::{DegreeBin, InferenceConfig, InferenceRow, inference};
pub use kappa::{KappaChoice, KappaConfig, KappaRow, NEAR_INFINITE, kappa, recommend};
pub use layer_work::{LayerWork, Work, layer_work};
pub use machine::{Machine, measure_arithmetic, measure_copy_bandwidth};
pub use memory::{Memory, MemoryConfig, MemoryRow, memory, memory_of};
pub use model_cost::{ModelCost, predict_model};
pub use modes::{ModeRow, ModesConfig, ModesRow, modes};
pub use p3::{P3Bytes, p3_terms};
pub use seeds::seed_pool;
pub use sizes::{BlockSize, PeSizes, SizesRow, sizes, with_random_relations};
pub use step_seconds::{StepConfig, StepParts, StepRow, step_seconds};
pub use work::{WorkConfig, WorkRow, work};

use crate::device::{LaborIterations, Method};

/// Receives a study's progress. `()` ignores it.
pub trait Listener {
    /// `done` of `total` steps are done; `what` comes next.
    fn step(&mut self, done: usize, total: usize, what: &str);
}

impl Listener for () {
    fn step(&mut self, _: usize, _: usize, _: &str) {}
}

/// The name of a sampling method in rows of results.
pub fn method_name(method: &Method) -> String {
    let mut name = match method {
        Method::Full => "full".to_owned(),
        Method::Neighbor { replace, weighted } => {
            let replace = if *replace { "-replace" } else { "" };
            format!("neighbor{replace}{}", if *weighted { "-weighted" } else { "" })
        }
        Method::Labor { iterations: LaborIterations::Converged, .. } => "labor".to_owned(),
        Method::Labor { iterations: LaborIterations::Fixed(i), .. } => format!("labor{i}"),
        Method::Walk { .. } => "walk".to_owned(),
    };
    if let Method::Labor { fixed_size, layer_dependent, .. } = method {
        name += if *fixed_size { "-fixed" } else { "" };
        name += if *layer_dependent { "-layers" } else { "" };
    }
    name
}

#[cfg(test)]
mod tests;
