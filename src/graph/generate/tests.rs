//! Generators: the same graph for any number of threads, and the distributions that their documentation states.
//!
//! The statistical tests use fixed draws; each says how unlikely its failure would be for a correct generator.

use super::*;
use crate::testing::assert_close;

fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

fn same_graph(a: &Graph, b: &Graph) -> bool {
    a.indptr() == b.indptr() && a.indices() == b.indices()
}

fn sbm() -> Sbm {
    Sbm {
        n_vertices: 4000,
        n_classes: 5,
        mean_degree: 30.0,
        homophily: 0.7,
        exponent: 2.5,
        max_propensity: 50.0,
        seed: 7,
    }
}

#[test]
fn any_number_of_threads_draws_the_same_graph() {
    let rmat = Rmat::graph500(12, 20, 3);
    let sbm = sbm();
    let one = with_threads(1, || (rmat.generate().unwrap(), sbm.generate().unwrap()));
    for threads in [2, 8] {
        let other = with_threads(threads, || (rmat.generate().unwrap(), sbm.generate().unwrap()));
        assert!(same_graph(&one.0, &other.0), "R-MAT, {threads} threads");
        assert!(same_graph(&one.1.graph, &other.1.graph), "SBM, {threads} threads");
        assert_eq!(one.1.labels, other.1.labels, "{threads} threads");
    }
    assert!(!same_graph(&one.0, &Rmat { seed: 4, ..rmat }.generate().unwrap()));
    assert!(!same_graph(&one.1.graph, &Sbm { seed: 8, ..sbm }.generate().unwrap().graph));
}

#[test]
fn rmat_options_give_the_sizes_they_promise() {
    let plain =
        Rmat { shuffle_names: false, symmetric: false, deduplicate: false, ..Rmat::graph500(10, 8, 1) };
    let graph = plain.generate().unwrap();
    assert_eq!((graph.n_vertices(), graph.n_edges()), (1024, 8192));
    let named = Rmat { shuffle_names: true, ..plain }.generate().unwrap();
    assert_eq!(named.n_edges(), 8192);
    let sorted_degrees = |graph: &Graph| {
        let mut degrees: Vec<u64> = graph.indptr().windows(2).map(|w| w[1] - w[0]).collect();
        degrees.sort_unstable();
        degrees
    };
    assert_eq!(sorted_degrees(&named), sorted_degrees(&graph), "names change no degree");
    assert!(!same_graph(&named, &graph));
    let simple = Rmat { symmetric: true, deduplicate: true, ..plain }.generate().unwrap();
    assert!(same_graph(&simple.symmetrize().unwrap(), &simple));
    assert!(same_graph(&simple.deduplicate().unwrap(), &simple));
    let single = Rmat::graph500(0, 3, 1).generate().unwrap();
    assert_eq!((single.n_vertices(), single.n_edges()), (1, 1), "three self-loops, merged");
    let half = Rmat { edge_factor: 2.5, ..plain }.generate().unwrap();
    assert_eq!(half.n_edges(), 2560);
}

/// χ² with 3 degrees of freedom passes 36 with probability 7.5e-8; ten levels: less than 1e-6 in all.
#[test]
fn rmat_descends_into_quadrants_by_their_probabilities() {
    let rmat = Rmat { quadrants: [0.45, 0.3, 0.15, 0.1], ..Rmat::graph500(10, 0, 11) };
    let n = 100_000u64;
    let mut counts = [[0u64; 4]; 10];
    for i in 0..n {
        let (source, destination) = rmat.edge(i);
        for (level, counts) in counts.iter_mut().enumerate() {
            let bit = |id: u32| (id >> (9 - level) & 1) as usize;
            counts[2 * bit(source) + bit(destination)] += 1;
        }
    }
    for (level, counts) in counts.iter().enumerate() {
        let deviation = |(&count, p): (&u64, f64)| (count as f64 - p * n as f64).powi(2) / (p * n as f64);
        let chi_squared: f64 = counts.iter().zip(rmat.quadrants).map(deviation).sum();
        assert!(chi_squared < 36.0, "level {level}: {counts:?}, χ² = {chi_squared}");
    }
}

/// Binomial shares, each within 5.5 standard deviations: false alarm below 4e-8 for each of 1 + 5 shares.
#[test]
fn sbm_edges_are_inside_a_class_by_the_homophily() {
    let sbm = sbm();
    let labels = sbm.labels().unwrap();
    let blocks = sbm.blocks(&labels).unwrap();
    let n = 200_000u64;
    let (mut inside, mut ends) = (0u64, [0u64; 5]);
    for i in 0..n {
        let (a, b) = sbm.edge(&blocks, i);
        let (a, b) = (labels[a as usize], labels[b as usize]);
        inside += u64::from(a == b);
        ends[a as usize] += 1;
    }
    let check = |count: u64, p: f64, what: &str| {
        let deviation = (count as f64 - p * n as f64) / (n as f64 * p * (1.0 - p)).sqrt();
        assert!(deviation.abs() < 5.5, "{what}: {count} of {n}, expected a share of {p}");
    };
    check(inside, 0.7, "inside");
    for (class, &count) in ends.iter().enumerate() {
        check(count, 0.2, &format!("first ends in class {class}"));
    }
}

/// Expected degrees follow from the propensities; a vertex' degree is then binomial over edges. The standardised
/// squared deviations summed over n = 4000 vertices have mean n and variance below n (2 + 1/μ) with the smallest
/// expected degree μ > 5: 8 standard deviations, beyond any false alarm of 1e-6 even with the skew of the sum.
#[test]
fn sbm_degrees_follow_the_propensities() {
    let sbm = sbm();
    let labels = sbm.labels().unwrap();
    let blocks = sbm.blocks(&labels).unwrap();
    let n_edges = 60_000u64;
    let mut degrees = vec![0u64; 4000];
    for i in 0..n_edges {
        let (a, b) = sbm.edge(&blocks, i);
        degrees[a as usize] += 1;
        degrees[b as usize] += 1;
    }
    assert_eq!(degrees.iter().sum::<u64>(), 2 * n_edges);
    let propensities: Vec<f64> = (0..4000).map(|v| sbm.propensity(v)).collect();
    assert!(propensities.iter().all(|p| (1.0..=50.0).contains(p)));
    let mut totals = [0.0; 5];
    labels.iter().zip(&propensities).for_each(|(&label, p)| totals[label as usize] += p);
    let mut sum = 0.0;
    for v in 0..4000 {
        let expected = 2.0 * n_edges as f64 / 5.0 * propensities[v] / totals[labels[v] as usize];
        assert!(expected > 5.0, "vertex {v}: {expected}");
        sum += (degrees[v] as f64 - expected).powi(2) / expected;
    }
    let deviation = (sum - 4000.0) / (4000.0f64 * 2.2).sqrt();
    assert!(deviation.abs() < 8.0, "χ² = {sum} of 4000 degrees of freedom");
}

/// Kolmogorov–Smirnov: a distance above 2.73/√n has probability 2 exp(-2 · 2.73²) < 7e-7.
#[test]
fn propensities_are_pareto_distributed() {
    let sbm = Sbm { n_vertices: 20_000, ..sbm() };
    let mut drawn: Vec<f64> = (0..20_000).map(|v| sbm.propensity(v)).collect();
    drawn.sort_by(f64::total_cmp);
    let cdf = |x: f64| (1.0 - x.powf(-1.5)) / (1.0 - 50f64.powf(-1.5));
    let distance = drawn
        .iter()
        .enumerate()
        .map(|(i, &x)| (cdf(x) - i as f64 / 2e4).abs().max((cdf(x) - (i + 1) as f64 / 2e4).abs()))
        .fold(0.0, f64::max);
    assert!(distance < 2.73 / 2e4f64.sqrt(), "distance {distance}");
}

/// The probability of each item is exact: the slots' shares add up.
#[test]
fn alias_tables_hold_the_weights() {
    let weights = [5.0, 1.0, 0.25, 3.0, 0.75, 2.0];
    let table = Alias::new((10..16).collect(), &weights).unwrap();
    let mut mass = [0.0; 6];
    for (i, &(share, other)) in table.slots.iter().enumerate() {
        mass[i] += share.min(1.0);
        mass[other as usize] += 1.0 - share.min(1.0);
    }
    assert_close("shares", &mass.map(|mass| mass / 6.0), &weights.map(|weight| weight / 12.0), |_, _| 1e-12);
    assert_eq!(table.draw(0.0), 10);
    assert!((10..16).contains(&table.draw(1.0f64.next_down())));
}

#[test]
fn generated_block_models_are_simple_and_balanced() {
    let SbmGraph { graph, labels } = sbm().generate().unwrap();
    assert!(same_graph(&graph.symmetrize().unwrap(), &graph));
    assert!(same_graph(&graph.deduplicate().unwrap(), &graph));
    assert!(same_graph(&graph.remove_self_loops().unwrap(), &graph));
    for class in 0..5 {
        assert_eq!(labels.iter().filter(|&&l| l == class).count(), 800);
    }
    // Dropping self-loops and parallel edges costs a few of the 30 edges per vertex.
    let mean = graph.degree_statistics().mean;
    assert!((27.0..=30.0).contains(&mean), "{mean}");
}

#[test]
fn parameters_out_of_range_are_named() {
    let message = |sbm: Sbm| sbm.generate().unwrap_err().to_string();
    assert!(message(Sbm { n_classes: 1, ..sbm() }).starts_with("n_classes is 1: expected 2 to 4000"));
    assert!(message(Sbm { n_vertices: 4, ..sbm() }).starts_with("n_classes is 5: expected 2 to 4"));
    assert!(message(Sbm { n_vertices: 1 << 32, ..sbm() }).starts_with("the vertex set has 4294967296"));
    assert!(message(Sbm { homophily: f64::NAN, ..sbm() }).starts_with("homophily is NaN"));
    assert!(message(Sbm { homophily: 1.5, ..sbm() }).starts_with("homophily is 1.5"));
    assert!(message(Sbm { mean_degree: -1.0, ..sbm() }).starts_with("mean_degree is -1"));
    assert!(message(Sbm { mean_degree: f64::INFINITY, ..sbm() }).starts_with("mean_degree is inf"));
    assert!(message(Sbm { mean_degree: 1e300, ..sbm() }).starts_with("the edge list has"));
    assert!(message(Sbm { exponent: 1.0, ..sbm() }).starts_with("exponent is 1"));
    assert!(message(Sbm { max_propensity: 0.5, ..sbm() }).starts_with("max_propensity is 0.5"));

    let message = |rmat: Rmat| rmat.generate().unwrap_err().to_string();
    assert!(message(Rmat::graph500(32, 1, 0)).starts_with("scale is 32: expected at most 31"));
    assert!(message(Rmat::graph500(10, 1e300, 0)).starts_with("the edge list has"));
    for factor in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(message(Rmat::graph500(10, factor, 0)).starts_with("edge_factor is "));
    }
    for quadrants in [[0.5, 0.5, 0.5, 0.5], [1.5, -0.5, 0.0, 0.0], [f64::NAN, 0.0, 0.0, 1.0]] {
        let error = message(Rmat { quadrants, ..Rmat::graph500(4, 1, 0) });
        assert!(error.starts_with("quadrants is ["), "{error}");
    }
}
