//! Forms of features and the ways between them.

use std::sync::Arc;

use approx::abs_diff_eq;
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

fn values(features: &Features) -> Vec<f32> {
    match features {
        Features::None => Vec::new(),
        Features::F32(d) => d.data().to_vec(),
        Features::F16(d) => d.data().iter().map(|v| v.to_f32()).collect(),
        Features::Bf16(d) => d.data().iter().map(|v| v.to_f32()).collect(),
        Features::Sparse(_) => values(&features.to_dense().unwrap()),
    }
}

#[test]
fn forms_tell_their_shape() {
    for (features, dtype) in [(dense(), FeatureDtype::F32), (sparse(), FeatureDtype::F32)] {
        assert_eq!((features.n_rows(), features.dtype()), (4, Some(dtype)));
    }
    assert_eq!((Features::None.n_rows(), Features::None.dim(), Features::None.dtype()), (0, 0, None));
    assert_eq!(values(&sparse())[..10], [1.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let half = dense().to_dtype(FeatureDtype::F16).unwrap();
    assert_eq!(half.dtype(), Some(FeatureDtype::F16));
    assert_eq!(values(&half), values(&dense()), "these are exact in f16");
    assert_eq!(values(&half.to_dtype(FeatureDtype::Bf16).unwrap()), values(&dense()), "and in bf16");
    assert!(Features::None.to_dtype(FeatureDtype::F16).unwrap().is_none());
    for name in ["f32", "f16", "bf16"] {
        let dtype: FeatureDtype = name.parse().unwrap();
        assert_eq!(dtype.to_string(), name);
        assert_eq!(dtype.bytes(), if name == "f32" { 4 } else { 2 });
    }
    assert_eq!(message("f8".parse::<FeatureDtype>()), "feature dtype is f8: expected f32, f16 or bf16");
}

#[test]
fn bad_features_are_named_by_row_and_column() {
    let finite = "expected a finite number";
    for (value, printed) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
        let mut data = vec![0.0; 6];
        data[5] = value;
        assert_eq!(
            message(Features::dense(data, 2, 3)),
            format!("features has the value {printed} in row 1, column 2: {finite}")
        );
    }
    assert_eq!(message(Features::dense(vec![0.0; 5], 2, 3)), "features has 5 elements, expected 6");
    assert!(message(Features::dense(vec![], usize::MAX, 2)).starts_with("the feature matrix has"));

    let new = |indptr: &[u64], indices: &[u32], values: &[f32], dim| {
        message(SparseFeatures::new(indptr.to_vec(), indices.to_vec(), values.to_vec(), dim))
    };
    assert_eq!(new(&[], &[], &[], 3), "feature indptr has 0 elements, expected 1");
    assert_eq!(new(&[1], &[], &[], 3), "feature indptr[0] is 1: expected 0");
    assert!(new(&[0, 2, 1], &[0], &[1.0], 3).starts_with("feature indptr[2] = 1 is below"));
    assert_eq!(new(&[0, 2], &[0], &[1.0], 3), "feature indices has 1 element, expected 2");
    assert_eq!(new(&[0, 1], &[0], &[1.0, 2.0], 3), "feature values has 2 elements, expected 1");
    assert!(new(&[0, 1, 2], &[0, 3], &[1.0; 2], 3).starts_with("feature indices[1] = 3 is out of range"));
    assert!(new(&[0, 2], &[1, 1], &[1.0; 2], 3).starts_with("feature indices is 1 at position 1"));
    let error = new(&[0, 1, 2], &[0, 2], &[1.0, f32::INFINITY], 3);
    assert_eq!(error, format!("features has the value inf in row 1, column 2: {finite}"));
}

#[test]
fn a_value_beyond_f16_is_an_error_and_no_infinity() {
    let large = Features::dense(vec![1.0, 2.0, 65_504.0, 1e6], 2, 2).unwrap();
    let error = message(large.to_dtype(FeatureDtype::F16));
    assert!(error.starts_with("features is 1000000 in row 1, column 1"), "{error}");
    assert!(large.to_dtype(FeatureDtype::Bf16).is_ok());
    let sparse = SparseFeatures::new(vec![0, 1], vec![1], vec![1e6], 2).unwrap();
    assert!(Features::Sparse(sparse).to_dtype(FeatureDtype::F16).is_err());
}

#[test]
fn rows_are_normalised_and_zero_rows_stay() {
    let x = dense().row_normalize().unwrap();
    assert_eq!(values(&x), [1.0 / 1.5, 0.5 / 1.5, 1.0, 0.0, 3.25 / 11.25, 8.0 / 11.25, 0.0, 0.0]);
    let x = sparse().row_normalize().unwrap();
    assert!(matches!(&x, Features::Sparse(s) if s.values() == [0.25, 0.75, 1.0, 1.0]));
    assert!(Features::None.row_normalize().unwrap().is_none());
    let cancelling = Features::dense(vec![1e30, -1e30, 1e-30], 1, 3).unwrap();
    assert!(message(cancelling.row_normalize()).contains("in row 0, column 0"));
    let signed = Features::dense(vec![1.0, -1.0], 1, 2).unwrap();
    assert_eq!(values(&signed.row_normalize().unwrap()), [1.0, -1.0], "a sum of zero");
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() })]

    #[test]
    fn sparse_and_dense_agree(
        (n_rows, dim, data) in (0usize..6, 0usize..7).prop_flat_map(|(n, dim)| {
            let value = prop_oneof![3 => Just(0.0f32), 2 => 0.1f32..10.0];
            (Just(n), Just(dim), proptest::collection::vec(value, n * dim))
        })
    ) {
        let (mut indptr, mut indices, mut stored) = (vec![0u64], Vec::new(), Vec::new());
        for row in 0..n_rows {
            for column in 0..dim {
                let value = data[row * dim + column];
                if value != 0.0 {
                    indices.push(column as u32);
                    stored.push(value);
                }
            }
            indptr.push(indices.len() as u64);
        }
        let sparse = Features::Sparse(SparseFeatures::new(indptr, indices, stored, dim).unwrap());
        let dense = Features::dense(data.clone(), n_rows, dim).unwrap();
        prop_assert_eq!(values(&sparse), data);
        prop_assert_eq!(values(&sparse.row_normalize().unwrap()), values(&dense.row_normalize().unwrap()));
        for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16] {
            let (a, b) = (sparse.to_dtype(dtype).unwrap(), dense.to_dtype(dtype).unwrap());
            prop_assert_eq!((a.dtype(), a.n_rows(), a.dim()), (Some(dtype), n_rows, dim));
            prop_assert_eq!(values(&a), values(&b));
            // Rounded to nearest: half a unit in the last of 11 or 8 significant bits.
            let bits = match dtype { FeatureDtype::F32 => 24, FeatureDtype::F16 => 11, FeatureDtype::Bf16 => 8 };
            for (narrow, exact) in values(&b).iter().zip(values(&dense)) {
                prop_assert!(abs_diff_eq!(*narrow, exact, epsilon = exact * 0.5f32.powi(bits)));
            }
        }
        for row in values(&dense.row_normalize().unwrap()).chunks(dim.max(1)) {
            let sum: f32 = row.iter().sum();
            prop_assert!(sum == 0.0 || abs_diff_eq!(sum, 1.0, epsilon = 1e-6), "{}", sum);
        }
    }
}

#[test]
fn half_rows_normalise_in_their_own_dtype() {
    let half = dense().to_dtype(FeatureDtype::F16).unwrap().row_normalize().unwrap();
    let exact = values(&dense().row_normalize().unwrap());
    assert!(
        matches!(&half, Features::F16(d) if d.row(0) == [f16::from_f32(exact[0]), f16::from_f32(exact[1])])
    );
    let half = dense().to_dtype(FeatureDtype::Bf16).unwrap().row_normalize().unwrap();
    assert!(matches!(&half, Features::Bf16(d) if d.row(2)[1] == bf16::from_f32(exact[5])));
}

#[test]
fn features_use_the_memory_that_they_are_given() {
    let values: Arc<[f32]> = Arc::new([1.0, 2.0, 3.0, 4.0]);
    let features = Dense::new(values.clone(), 2, 2).unwrap();
    assert_eq!(features.data().as_ptr(), values.as_ptr());
    drop(features);
    assert_eq!(Arc::strong_count(&values), 1);
}
