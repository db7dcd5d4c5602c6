//! What does not depend on the device is tested in `test_kernels`.

use super::*;
use crate::device::test_kernels::{Random, Typed};

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let cpu = Cpu::<f32>::new();
    let (n_dst, n_src, n_edge, k, n) = (9000, 12_000, 80_000, 12, 20);
    let mut random = Random(5);
    let Typed { indptr, indices, edge_type, .. } = Typed::new(n_dst, n_src, n_edge, 3, &mut random);
    let csr = Csr {
        n_rows: n_dst,
        n_cols: n_src,
        indptr: &indptr[..],
        indices: &indices[..],
        edge: None,
        longest_row: None,
    };
    let grouped = cpu.group_relations(csr, &edge_type, 3, None).unwrap();
    let [x, w, dout] = [n_src * k, 3 * k * n, n_dst * n].map(|len| random.values::<f32>(len, false));
    let run = || {
        let (x, dout) = (Matrix::new(&x[..], n_src, k).unwrap(), Matrix::new(&dout[..], n_dst, n).unwrap());
        let mut results = Vec::new();
        for order in [Order::AggregateFirst, Order::TransformFirst] {
            for (direction, input, rows, cols) in
                [(Direction::Forward, x, n_dst, n), (Direction::Backward, dout, n_src, k)]
            {
                let mut out = vec![0.0; rows * cols];
                let view = MatrixMut::new(&mut out[..], rows, cols).unwrap();
                cpu.relation_product(&grouped, direction, order, &w, input, view, Write::Assign).unwrap();
                results.push(out);
            }
        }
        for aggregated in [Direction::Forward, Direction::Backward] {
            let mut dw = vec![0.0; w.len()];
            cpu.relation_weight_gradient(&grouped, aggregated, x, dout, &mut dw).unwrap();
            results.push(dw);
        }
        let (mut dx, mut dw) = (vec![0.0; n_src * k], vec![0.0; w.len()]);
        let view = MatrixMut::new(&mut dx[..], n_src, k).unwrap();
        cpu.relation_gradients(&grouped, &w, x, dout, view, Write::Assign, &mut dw).unwrap();
        results.extend([dx, dw]);
        results.concat().into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    };
    let with_threads =
        |n: usize| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(run);
    let expected = with_threads(1);
    for n_threads in [2, 3, 8] {
        assert!(with_threads(n_threads) == expected, "{n_threads} threads");
    }
}
