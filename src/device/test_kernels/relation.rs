//! Aggregation over typed edges: both orders against a naive sum over edges.

use super::naive::Typed;
use super::{Expected, Guarded, Random, test_devices, to_f64};
use crate::device::{
    Cpu, Csr, Direction, Matrix, Order, Relation, RelationEdges, RelationGroups, Scalar, Storage, Write,
};
use crate::error::Error;

test_devices! {
    both_orders_equal_the_sum_over_edges tiles_of_every_extent relations_of_many_groups a_hub one_edge_a_group
    groups_are_by_relation_and_row groups_are_those_of_the_cpu relations_out_of_range wrong_shapes_are_errors
}

/// A typed block on a device.
struct Edges<D: Storage> {
    n_dst: usize,
    n_src: usize,
    indptr: Guarded<D, u32>,
    indices: Guarded<D, u32>,
    edge_type: Guarded<D, u16>,
    weight: Option<Guarded<D>>,
}

impl<D: Relation> Edges<D> {
    fn new(device: &D, block: &Typed, weight: Option<&[f64]>) -> Self {
        let weight = weight.map(|weight| weight.iter().map(|&w| D::Scalar::from_f64(w)).collect::<Vec<_>>());
        Edges {
            n_dst: block.n_dst(),
            n_src: block.n_src,
            indptr: Guarded::new(device, &block.indptr),
            indices: Guarded::new(device, &block.indices),
            edge_type: Guarded::new(device, &block.edge_type),
            weight: weight.map(|weight| Guarded::new(device, &weight)),
        }
    }

    fn csr(&self) -> Csr<'_, D> {
        let (indptr, indices) = (self.indptr.view(), self.indices.view());
        Csr { n_rows: self.n_dst, n_cols: self.n_src, indptr, indices, edge: None, longest_row: None }
    }

    fn group(&self, device: &D, n_relations: usize) -> RelationEdges<D> {
        let weight = self.weight.as_ref().map(Guarded::view);
        device.group_relations(self.csr(), self.edge_type.view(), n_relations, weight).unwrap()
    }
}

/// Products in both directions and orders, and the weights' gradient summed either way.
fn check<D: Relation>(device: &D, block: &Typed, n_relations: usize, [k, n]: [usize; 2], weighted: bool) {
    let (n_dst, n_src, n_edge) = (block.n_dst(), block.n_src, block.indices.len());
    let mut random = Random(n_edge as u64 * 31 + k as u64 * 7 + n as u64);
    let own: Option<Vec<f64>> = weighted
        .then(|| (0..n_edge).map(|_| random.value::<f32>(false).abs() + 0.1))
        .map(|weights| weights.map(f64::from).collect());
    let [x, w, dout] = [n_src * k, n_relations * k * n, n_dst * n].map(|len| random.values(len, false));
    let (mut out, mut dx) = (Expected::zeros(n_dst * n), Expected::from(vec![1.0; n_src * k]));
    let mut dw = Expected::zeros(w.len());
    let [x64, w64, dout64] = [&x, &w, &dout].map(|values| to_f64::<D::Scalar>(values));
    for (t, s, r, factor) in block.edges(own.as_deref()) {
        for i in 0..k {
            for j in 0..n {
                let at = (r * k + i) * n + j;
                out.add(t * n + j, factor * x64[s * k + i] * w64[at]);
                dx.add(s * k + i, factor * dout64[t * n + j] * w64[at]);
                dw.add(at, factor * x64[s * k + i] * dout64[t * n + j]);
            }
        }
    }
    let w_len = w.len();
    let edges = Edges::new(device, block, own.as_deref());
    let edges = edges.group(device, n_relations);
    let [x, w, dout] = [x, w, dout].map(|values| Guarded::new(device, &values));
    for order in [Order::AggregateFirst, Order::TransformFirst] {
        let mut found = Guarded::poisoned(device, n_dst * n);
        let (to, from) = (found.matrix_mut(n_dst, n), x.matrix(n_src, k));
        device
            .relation_product(&edges, Direction::Forward, order, w.view(), from, to, Write::Assign)
            .unwrap();
        out.check(&found.read(), false);
        let mut found = Guarded::new(device, &vec![D::Scalar::from_f64(1.0); n_src * k]);
        let (to, from) = (found.matrix_mut(n_src, k), dout.matrix(n_dst, n));
        device.relation_product(&edges, Direction::Backward, order, w.view(), from, to, Write::Add).unwrap();
        dx.check(&found.read(), false);
    }
    for aggregated in [Direction::Forward, Direction::Backward] {
        let mut found = Guarded::poisoned(device, dw.values.len());
        let (x, dout) = (x.matrix(n_src, k), dout.matrix(n_dst, n));
        device.relation_weight_gradient(&edges, aggregated, x, dout, found.view_mut()).unwrap();
        dw.check(&found.read(), false);
    }
    for write in [Write::Assign, Write::Add] {
        let (mut found_dx, mut found_dw) = (
            Guarded::new(device, &vec![D::Scalar::from_f64(1.0); n_src * k]),
            Guarded::poisoned(device, w_len),
        );
        let (x, dout) = (x.matrix(n_src, k), dout.matrix(n_dst, n));
        let out = found_dx.matrix_mut(n_src, k);
        device.relation_gradients(&edges, w.view(), x, dout, out, write, found_dw.view_mut()).unwrap();
        let mut found = found_dx.read();
        if write == Write::Assign {
            found.iter_mut().for_each(|found| *found += D::Scalar::from_f64(1.0));
        }
        dx.check(&found, false);
        dw.check(&found_dw.read(), false);
    }
}

fn both_orders_equal_the_sum_over_edges<D: Relation>(device: &D) {
    for (n_dst, n_src, n_edge, n_relations) in
        [(0, 0, 0, 2), (3, 5, 0, 2), (1, 1, 1, 1), (13, 29, 90, 4), (40, 50, 60, 70), (300, 500, 1500, 3)]
    {
        let block = Typed::new(n_dst, n_src, n_edge, n_relations, &mut Random(7));
        for (k, n) in [(1, 1), (5, 3), (3, 18), (0, 2), (2, 0)] {
            for weighted in [false, true] {
                check(device, &block, n_relations, [k, n], weighted);
            }
        }
    }
}

/// Several tiles in each direction, with and without a rest, aligned and not, and several steps inside.
fn tiles_of_every_extent<D: Relation>(device: &D) {
    let block = Typed::new(20, 30, 80, 2, &mut Random(3));
    for dims in [[64, 128], [132, 68], [17, 65], [131, 3], [1, 1024], [1024, 4]] {
        check(device, &block, 2, dims, false);
    }
}

/// More rows than a tile has, and more groups than one part of a gradient's sum.
fn relations_of_many_groups<D: Relation>(device: &D) {
    let block = Typed::new(900, 1100, 3000, 2, &mut Random(4));
    // With 68 columns, a part of the weights' gradient on the CPU has two tiles.
    for dims in [[4, 8], [5, 3], [2, 68]] {
        check(device, &block, 2, dims, false);
    }
    // Relations that begin and end where parts do: each of the first destinations has an edge of relations 0, 2 and 3.
    let mut edges: Vec<(u32, u16)> = (0..512u32).map(|t| (t, 0)).collect();
    edges.extend((0..256u32).map(|t| (t, 2)).chain((0..129).map(|t| (t, 3))));
    edges.sort_unstable();
    let block = Typed {
        n_src: 512,
        indptr: (0..=512u32).map(|t| edges.partition_point(|&(own, _)| own < t) as u32).collect(),
        indices: edges.iter().map(|&(t, _)| 511 - t).collect(),
        edge_type: edges.iter().map(|&(_, r)| r).collect(),
    };
    check(device, &block, 5, [4, 4], false);
}

fn a_hub<D: Relation>(device: &D) {
    let mut random = Random(9);
    let n_edge = 100_000;
    let block = Typed {
        n_src: 50,
        indptr: vec![0, 0, n_edge, n_edge + 1],
        indices: (0..=n_edge).map(|_| random.index(50) as u32).collect(),
        edge_type: (0..=n_edge).map(|_| random.index(2) as u16).collect(),
    };
    check(device, &block, 2, [2, 1], true);
}

fn one_edge_a_group<D: Relation>(device: &D) {
    let block = Typed {
        n_src: 5,
        indptr: vec![0, 2, 2, 3, 4, 7],
        indices: vec![3, 3, 0, 1, 4, 2, 0],
        edge_type: vec![2, 0, 0, 2, 2, 1, 0],
    };
    for dims in [[4, 4], [3, 5]] {
        check(device, &block, 3, dims, false);
        check(device, &block, 3, dims, true);
    }
}

fn groups_are_by_relation_and_row<D: Relation>(device: &D) {
    // Destination 0: sources 1 (relation 2), 1 (relation 0), 2 (relation 2); destination 1: none; 2: source 0 (2).
    let block =
        Typed { n_src: 3, indptr: vec![0, 3, 3, 4], indices: vec![1, 1, 2, 0], edge_type: vec![2, 0, 2, 2] };
    let edges = Edges::new(device, &block, None);
    let edges = edges.group(device, 4);
    let read = |buffer: &D::Buffer<u32>| device.download(D::view(buffer)).unwrap();
    let groups = &edges.by_destination;
    assert_eq!(groups.offsets, [0, 1, 1, 3, 3]);
    assert_eq!(read(&groups.row), [0, 0, 2]);
    assert_eq!(read(&groups.indptr), [0, 1, 3, 4]);
    assert_eq!(read(&groups.indices), [1, 1, 2, 0]);
    assert_eq!(to_f64(&device.download(D::view(&groups.weight)).unwrap()), [1.0, 0.5, 0.5, 1.0]);
    assert_eq!(read(&edges.by_source.row), [1, 0, 1, 2]);
    assert_eq!(edges.by_source.offsets, [0, 1, 1, 4, 4]);
    assert_eq!(read(&groups.partner), [0, 1, 2, 0]);
    assert_eq!(read(&edges.source_group), [2, 0, 3, 1]);
    assert_eq!(read(&edges.destination_group), [1, 0, 1, 2]);
}

/// All arrays, as CPU code reads them.
fn groups_are_those_of_the_cpu<D: Relation>(device: &D) {
    fn integers<D: Relation>(device: &D, edges: &RelationEdges<D>) -> Vec<Vec<u32>> {
        let read = |buffer: &D::Buffer<u32>| device.download(D::view(buffer)).unwrap();
        let of = |groups: &RelationGroups<D>| {
            let arrays = [&groups.row, &groups.indptr, &groups.indices, &groups.partner].map(read);
            [vec![groups.offsets.clone()], arrays.to_vec()].concat()
        };
        let own = [&edges.destination_group, &edges.source_group].map(read).to_vec();
        [of(&edges.by_destination), of(&edges.by_source), own].concat()
    }
    let cpu = Cpu::<D::Scalar>::new();
    for (n_dst, n_src, n_edge, n_relations) in
        [(0, 0, 0, 0), (2, 0, 0, 3), (70, 90, 800, 5), (300, 20, 700, 1000), (1, 1, 300, 3)]
    {
        let block = Typed::new(n_dst, n_src, n_edge, n_relations, &mut Random(11));
        for weighted in [false, true] {
            let weight: Option<Vec<f64>> = weighted.then(|| (0..n_edge).map(|e| (e % 7) as f64).collect());
            let edges = Edges::new(device, &block, weight.as_deref()).group(device, n_relations);
            let expected = Edges::new(&cpu, &block, weight.as_deref()).group(&cpu, n_relations);
            assert_eq!(integers(device, &edges), integers(&cpu, &expected));
            let read = |buffer| device.download(D::view(buffer)).unwrap();
            let same = |actual, expected: &[D::Scalar]| {
                Expected::from(to_f64(expected)).check(&read(actual), false);
            };
            same(&edges.weight, &expected.weight);
            same(&edges.by_destination.weight, &expected.by_destination.weight);
            same(&edges.by_source.weight, &expected.by_source.weight);
        }
    }
}

fn relations_out_of_range<D: Relation>(device: &D) {
    let block =
        Typed { n_src: 3, indptr: vec![0, 3, 4], indices: vec![1, 1, 2, 0], edge_type: vec![2, 0, 4, 2] };
    let edges = Edges::new(device, &block, None);
    let error = device.group_relations(edges.csr(), edges.edge_type.view(), 4, None).unwrap_err();
    assert_eq!(error.to_string(), "edge_type[2] = 4 is out of range: expected a value below 4");
    assert!(device.group_relations(edges.csr(), edges.edge_type.view(), 0, None).is_err());
    edges.group(device, 5);
}

fn wrong_shapes_are_errors<D: Relation>(device: &D) {
    let block = Typed { n_src: 2, indptr: vec![0, 1], indices: vec![1], edge_type: vec![0] };
    let edges = Edges::new(device, &block, None);
    let short = Guarded::new(device, &[0u16; 2]);
    let error = device.group_relations(edges.csr(), short.view(), 1, None).unwrap_err();
    assert!(matches!(error, Error::WrongLength { array: "edge_type", actual: 2, expected: 1 }), "{error}");
    let weight = Guarded::new(device, &[D::Scalar::from_f64(1.0); 2]);
    let weight = Some(weight.view());
    assert!(device.group_relations(edges.csr(), edges.edge_type.view(), 1, weight).is_err());

    let edges = edges.group(device, 1);
    let values = Guarded::new(device, &[D::Scalar::from_f64(1.0); 6]);
    let part = |len: usize| D::slice(values.view(), 0..len);
    let matrix = |rows: usize, cols: usize| Matrix::<D>::from_view(part(rows * cols), rows, cols).unwrap();
    let product = |weight, x, rows: usize, cols: usize| {
        let mut out = Guarded::poisoned(device, rows * cols);
        let (direction, order) = (Direction::Forward, Order::AggregateFirst);
        let out = out.matrix_mut(rows, cols);
        device.relation_product(&edges, direction, order, weight, x, out, Write::Assign)
    };
    assert!(product(part(6), matrix(2, 3), 1, 2).is_ok());
    assert!(matches!(product(part(5), matrix(2, 3), 1, 2), Err(Error::WrongLength { .. })));
    assert!(matches!(product(part(6), matrix(1, 3), 1, 2), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(product(part(6), matrix(2, 3), 2, 2), Err(Error::ShapeMismatch { .. })));
    let gradient = |x, dout, len| {
        let mut dweight = Guarded::poisoned(device, len);
        device.relation_weight_gradient(&edges, Direction::Forward, x, dout, dweight.view_mut())
    };
    assert!(gradient(matrix(2, 3), matrix(1, 2), 6).is_ok());
    assert!(matches!(gradient(matrix(2, 3), matrix(1, 2), 5), Err(Error::WrongLength { .. })));
    assert!(matches!(gradient(matrix(2, 3), matrix(2, 2), 6), Err(Error::ShapeMismatch { .. })));
}
