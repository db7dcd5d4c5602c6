//! The built-in sets: sizes, and the accuracies that their documentation states.

use super::*;
use crate::testing::assert_close;

/// The figures in the documentation of [`SbmData`].
#[test]
fn the_block_model_is_as_hard_as_documented() {
    let made = SbmData::default();
    let dataset = load("sbm").unwrap();
    assert_eq!((dataset.n_vertices(), dataset.n_classes, dataset.features.dim()), (30_000, 8, 64));
    assert_eq!((dataset.train_idx.len(), dataset.val_idx.len(), dataset.test_idx.len()), (3000, 3000, 6000));
    assert!((550_000..=600_000).contains(&dataset.graph.n_edges()), "{}", dataset.graph.n_edges());
    let reference = made.reference(&dataset).unwrap();
    assert_eq!(reference.chance, 0.125);
    let found = [reference.features, reference.one_hop, reference.oracle];
    assert_close("reference", &found, &[0.599, 0.887, 0.960], |_, _| 0.0006);
}

#[test]
fn references_need_their_own_data_set() {
    let made = SbmData::default();
    let other = small(dense());
    assert!(message(made.reference(&other)).starts_with("dataset is 2 columns and 3 classes"));
    assert!(message(made.reference(&small(sparse()))).starts_with("features is"));
}

#[test]
fn the_benchmark_set_has_the_size_it_promises() {
    let dataset = load("rmat").unwrap();
    assert_eq!((dataset.n_vertices(), dataset.features.dim(), dataset.n_classes), (1 << 15, 64, 16));
    assert!(dataset.graph.n_edges() > 700_000, "{}", dataset.graph.n_edges());
    assert!(dataset.labels.iter().all(|l| (0..16).contains(l)));
    let none = RmatData { n_classes: 0, ..RmatData::default() };
    assert!(message(none.generate()).starts_with("n_classes is 0"));
    let wide = RmatData { dim: usize::MAX, ..RmatData::default() };
    assert!(message(wide.generate()).starts_with("the feature matrix has"));
}

#[test]
fn any_number_of_threads_makes_the_same_set() {
    let mut made = SbmData { dim: 9, ..SbmData::default() };
    made.graph.n_vertices = 2000;
    let make = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| made.generate().unwrap())
    };
    let one = make(1);
    for threads in [2, 8] {
        let other = make(threads);
        assert_eq!(one.graph.indices(), other.graph.indices());
        assert_eq!(one.labels[..], other.labels[..]);
        assert_eq!(one.train_idx, other.train_idx);
        let (Features::F32(a), Features::F32(b)) = (&one.features, &other.features) else {
            panic!("not f32")
        };
        assert_eq!(a.data(), b.data());
    }
}
