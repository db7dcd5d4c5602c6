//! Kernel family *SpMM*: sparse times dense, the aggregation of every layer.

use std::borrow::Cow;

use crate::device::{
    Cpu, Element, Matrix, MatrixMut, Scalar, Storage, Write, check_matrix, check_matrix_mut, check_same_shape,
};
use crate::error::{Error, Result, check_length};

/// A sparse pattern in compressed rows: row `i` holds the columns `indices[indptr[i]..indptr[i + 1]]`.
///
/// A block is one with destinations as rows and sources as columns; its transpose has sources as rows and, in
/// `edge`, the position that each entry has in the block. Parallel entries count separately.
///
/// Valid by construction: `indptr` ascends from 0 to `n_edge`, `indices` are below `n_cols`, `edge` below `n_edge`.
/// Kernels rely on this, and a GPU's do not check it, so outside of this crate a pattern is made by [`new`](Csr::new)
/// over host memory, by [`from_views`](Csr::from_views) on any device, or by a [`Pattern`](crate::pattern::Pattern) or
/// [`Block`](crate::block::Block), which own the arrays and were checked once.
///
/// ```
/// # fn main() -> cohop::Result<()> {
/// use cohop::prelude::*;
///
/// let (indptr, indices) = (vec![0, 2, 3], [0, 2, 1]);
/// let (x, mut out) = ([1.0_f32, 10.0, 100.0], vec![0.0; 2]);
/// let a = Csr::new(&indptr, &indices, 3)?;
/// let (x, sums) = (Matrix::new(&x, 3, 1)?, MatrixMut::new(&mut out, 2, 1)?);
/// Cpu::new().spmm(a, Weights::ones(), x, sums, Write::Assign)?;
/// assert_eq!(out, [101.0, 10.0]);
/// # Ok(())
/// # }
/// ```
pub struct Csr<'a, D: Storage> {
    /// Number of rows.
    pub(crate) n_rows: usize,
    /// Number of columns: an upper bound of `indices`.
    pub(crate) n_cols: usize,
    /// `[n_rows + 1]`, ascending from 0 to `n_edge`.
    pub(crate) indptr: D::View<'a, u32>,
    /// `[n_edge]`
    pub(crate) indices: D::View<'a, u32>,
    /// `[n_edge]`: the position of each entry's weight; `None`: the entry's own.
    pub(crate) edge: Option<D::View<'a, u32>>,
    /// The most entries of a row, where that is known. It only decides how a device divides the work.
    pub(crate) longest_row: Option<usize>,
}

impl<D: Storage> Clone for Csr<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for Csr<'_, D> {}

impl<D: Storage> std::fmt::Debug for Csr<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Csr[{} x {}, {} entries]", self.n_rows, self.n_cols, self.n_edge())
    }
}

impl<'a, S: Scalar> Csr<'a, Cpu<S>> {
    /// A pattern over arrays in host memory, `indptr: [n_rows + 1]`, `indices: [n_edge]`: slices, vectors or arrays.
    ///
    /// Everything is read once: O(n_rows + n_edge).
    ///
    /// Errors: `indptr` is empty or does not ascend from 0 to `indices.len()`, or an index is not below `n_cols`.
    pub fn new(indptr: &'a [u32], indices: &'a [u32], n_cols: usize) -> Result<Self> {
        check_csr(indptr, indices, n_cols)?;
        Ok(Csr { n_rows: indptr.len() - 1, n_cols, indptr, indices, edge: None, longest_row: None })
    }

    /// The pattern with the position of each entry's weight, `edge: [n_edge]`, as a transpose has it.
    ///
    /// Errors: `edge` does not have `n_edge` elements, or one of them is not below `n_edge`.
    pub fn with_edge(self, edge: &'a [u32]) -> Result<Self> {
        check_length("edge", edge.len(), self.n_edge())?;
        check_below("edge", edge, self.n_edge())?;
        Ok(Csr { edge: Some(edge), ..self })
    }
}

impl<'a, D: Storage> Csr<'a, D> {
    /// A pattern over arrays in a device's memory, checked as by [`new`](Csr::new).
    ///
    /// A GPU's arrays are copied to the host for this, which waits for the device: make a pattern that is used often
    /// once, as a [`Pattern`](crate::pattern::Pattern).
    ///
    /// Errors: those of [`new`](Csr::new), or the device fails.
    pub fn from_views(
        device: &D,
        indptr: D::View<'a, u32>,
        indices: D::View<'a, u32>,
        n_cols: usize,
    ) -> Result<Self> {
        check_csr(&on_host(device, indptr)?, &on_host(device, indices)?, n_cols)?;
        Ok(Csr { n_rows: D::view_len(&indptr) - 1, n_cols, indptr, indices, edge: None, longest_row: None })
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Number of entries.
    pub fn n_edge(&self) -> usize {
        D::view_len(&self.indices)
    }

    /// `[n_rows + 1]`: where each row's entries begin.
    pub fn indptr(&self) -> D::View<'a, u32> {
        self.indptr
    }

    /// `[n_edge]`: columns.
    pub fn indices(&self) -> D::View<'a, u32> {
        self.indices
    }

    /// `[n_edge]`: the position of each entry's weight; `None`: the entry's own.
    pub fn edge(&self) -> Option<D::View<'a, u32>> {
        self.edge
    }
}

/// The most entries of a row; `indptr` ascends.
pub(crate) fn longest_row(indptr: &[u32]) -> usize {
    indptr.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0) as usize
}

/// The elements of a view: itself where it is host memory, else a copy.
pub(crate) fn on_host<'a, D: Storage, T: Element>(device: &D, view: D::View<'a, T>) -> Result<Cow<'a, [T]>> {
    match D::as_host(view) {
        Some(elements) => Ok(Cow::Borrowed(elements)),
        None => Ok(Cow::Owned(device.download(view)?)),
    }
}

/// `Ok` if `indptr` ascends from 0 to the number of `indices`, and these are below `n_cols`.
pub(crate) fn check_csr(indptr: &[u32], indices: &[u32], n_cols: usize) -> Result<()> {
    let Some(&last) = indptr.last() else {
        return Err(Error::WrongLength { array: "indptr", actual: 0, expected: 1 });
    };
    if indptr[0] != 0 {
        return Err(Error::invalid("indptr[0]", indptr[0], "0"));
    }
    if let Some(position) = indptr.windows(2).position(|pair| pair[1] < pair[0]) {
        return Err(Error::NotMonotone {
            array: "indptr",
            position: position as u64 + 1,
            value: indptr[position + 1].into(),
            previous: indptr[position].into(),
        });
    }
    check_length("indices", indices.len(), last as usize)?;
    check_below("indices", indices, n_cols)
}

/// `Ok` if all entries are below `limit`.
fn check_below(array: &'static str, entries: &[u32], limit: usize) -> Result<()> {
    match entries.iter().position(|&entry| entry as usize >= limit) {
        None => Ok(()),
        Some(position) => Err(Error::IndexOutOfRange {
            array,
            position: position as u64,
            value: i64::from(entries[position]),
            limit: limit as u64,
        }),
    }
}

/// `Ok` if the lengths of `a`'s arrays fit together, as far as they can be known without reading them.
pub(crate) fn check_csr_lengths<D: Storage>(a: &Csr<'_, D>) -> Result<()> {
    check_length("indptr", D::view_len(&a.indptr), a.n_rows + 1)?;
    let n_edge = D::view_len(&a.indices);
    check_length("edge", a.edge.as_ref().map_or(n_edge, |edge| D::view_len(edge)), n_edge)
}

/// `Ok` if `a.edge` is absent.
pub(crate) fn check_no_edge<D: Storage>(a: &Csr<'_, D>) -> Result<()> {
    match a.edge {
        None => Ok(()),
        Some(_) => {
            Err(Error::invalid("edge", "present", "absent: values stand at the entries' own positions"))
        }
    }
}

/// `Ok` if `x: [n_cols, dim]` and `out: [n_rows, dim]`, and the arrays of all fit together.
pub(crate) fn check_product<D: Storage>(
    op: &'static str,
    a: &Csr<'_, D>,
    x: &Matrix<'_, D>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_csr_lengths(a)?;
    check_matrix(x)?;
    check_matrix_mut(out)?;
    check_same_shape(op, "dense operand", x.shape(), "required", [a.n_cols, x.cols])?;
    check_same_shape(op, "out", out.shape(), "required", [a.n_rows, x.cols])
}

/// `Ok` if the factors that are there fit the pattern.
pub(crate) fn check_weights<D: Storage>(a: &Csr<'_, D>, weights: &Weights<'_, D>) -> Result<()> {
    for (name, factor, expected) in [
        ("edge weights", weights.edge, D::view_len(&a.indices)),
        ("row factors", weights.row, a.n_rows),
        ("column factors", weights.column, a.n_cols),
    ] {
        check_length(name, factor.map_or(expected, |factor| D::view_len(&factor)), expected)?;
    }
    Ok(())
}

/// `Ok` if the arguments of [`Spmm::spmm_heads`] fit together.
pub(crate) fn check_spmm_heads<D: Storage>(
    a: &Csr<'_, D>,
    weight: &D::View<'_, D::Scalar>,
    heads: usize,
    x: &Matrix<'_, D>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_product("spmm_heads", a, x, out)?;
    if heads == 0 || !x.cols.is_multiple_of(heads) {
        return Err(Error::invalid("heads", heads, format!("a divisor of the {} columns", x.cols)));
    }
    check_length("edge weights", D::view_len(weight), D::view_len(&a.indices) * heads)
}

/// `a.edge`, or an error if it is absent.
pub(crate) fn positions_of_transpose<'a, D: Storage>(a: &Csr<'a, D>) -> Result<D::View<'a, u32>> {
    a.edge.ok_or_else(|| Error::invalid("edge", "absent", "the positions that a transpose has"))
}

/// Factors of a sparse matrix with the pattern of a [`Csr`]: entry `e` of row `i` and column `j` has the value
/// `edge[position(e)] * row[i] * column[j]`, where an absent factor is 1 and `position(e)` is `csr.edge[e]` or `e`.
///
/// The mean over in-edges has `row = 1 / degree`; its transpose has the same factors in `column`.
pub struct Weights<'a, D: Storage> {
    /// `[n_edge]`
    pub edge: Option<D::View<'a, D::Scalar>>,
    /// `[n_rows]`
    pub row: Option<D::View<'a, D::Scalar>>,
    /// `[n_cols]`
    pub column: Option<D::View<'a, D::Scalar>>,
}

impl<D: Storage> Clone for Weights<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for Weights<'_, D> {}

impl<D: Storage> Weights<'_, D> {
    /// All entries 1.
    pub const fn ones() -> Self {
        Weights { edge: None, row: None, column: None }
    }
}

impl<'a, S: Scalar> Weights<'a, Cpu<S>> {
    /// A factor for each entry, `[n_edge]`.
    pub fn per_edge(factor: &'a [S]) -> Self {
        Weights { edge: Some(factor), ..Weights::ones() }
    }

    /// A factor for each row, `[n_rows]`.
    pub fn per_row(factor: &'a [S]) -> Self {
        Weights { row: Some(factor), ..Weights::ones() }
    }

    /// A factor for each column, `[n_cols]`.
    pub fn per_column(factor: &'a [S]) -> Self {
        Weights { column: Some(factor), ..Weights::ones() }
    }
}

/// Aggregation over the entries of each row.
pub trait Spmm: Storage {
    /// `out[i, :] (= | +=) Σ_e weight(e) · x[indices[e], :]` over the entries `e` of row `i`, in their order.
    ///
    /// `x: [n_cols, dim]`, `out: [n_rows, dim]`. A row without entries gives 0. Reads `n_edge · dim` and writes
    /// `n_rows · dim` scalars.
    ///
    /// Errors: `x`, `out` or a factor does not have its shape, or the device fails.
    fn spmm(
        &self,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// `out[i, h, :] (= | +=) Σ_e weight[position(e), h] · x[indices[e], h, :]` over the entries `e` of row `i`, in
    /// their order, where `position(e)` is `a.edge[e]` or `e`: a weight per entry and head.
    ///
    /// `x: [n_cols, heads · dim]`, `weight: [n_edge, heads]`, `out: [n_rows, heads · dim]`; `x.cols` must be a
    /// multiple of `heads`. A row without entries gives 0. Reads `n_edge · heads · (dim + 1)` scalars.
    ///
    /// Errors: `heads` is 0 or does not divide `x.cols`, `x`, `weight` or `out` does not have its shape, or the device
    /// fails.
    fn spmm_heads(
        &self,
        a: Csr<'_, Self>,
        weight: Self::View<'_, Self::Scalar>,
        heads: usize,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// `out[i, c] = max_e x[indices[e], c]` over the entries of row `i`, and `argmax[i, c]` the position `e` of the
    /// first entry that attains it. A row without entries gives 0 and `u32::MAX`. A NaN is never the maximum
    /// unless all entries are NaN, in which case the first is taken.
    ///
    /// `x: [n_cols, dim]`, `out, argmax: [n_rows, dim]`. `a.edge` must be absent.
    ///
    /// Errors: `a.edge` is present, `x`, `out` or `argmax` does not have its shape, or the device fails.
    fn spmm_max(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        argmax: Self::ViewMut<'_, u32>,
    ) -> Result<()>;

    /// The gradient of [`spmm_max`](Spmm::spmm_max): `dx[j, c] (= | +=) Σ dout[i, c]` over the entries of row `j` of
    /// the *transpose* `a` (columns `i`, positions `a.edge`) whose position equals `argmax[i, c]`.
    ///
    /// `dout, argmax: [a.n_cols, dim]`, `dx: [a.n_rows, dim]`. `a.edge` must be present.
    ///
    /// Errors: `a.edge` is absent, `argmax`, `dout` or `dx` does not have its shape, or the device fails.
    fn spmm_max_backward(
        &self,
        a: Csr<'_, Self>,
        argmax: Self::View<'_, u32>,
        dout: Matrix<'_, Self>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_made_of_slices_vectors_and_arrays_and_only_if_valid() {
        let (indptr, indices) = (vec![0u32, 2, 2, 3], [2u32, 0, 1]);
        let a = Csr::<Cpu>::new(&indptr, &indices, 3).unwrap();
        assert_eq!((a.n_rows(), a.n_cols(), a.n_edge(), a.edge()), (3, 3, 3, None));
        assert_eq!((a.indptr().as_ptr(), a.indices().as_ptr()), (indptr.as_ptr(), indices.as_ptr()));
        assert_eq!(a.with_edge(&[1, 0, 2]).unwrap().edge(), Some(&[1, 0, 2][..]));
        assert!(matches!(a.with_edge(&[0, 1]), Err(Error::WrongLength { array: "edge", .. })));
        assert!(matches!(
            a.with_edge(&[0, 3, 1]),
            Err(Error::IndexOutOfRange { array: "edge", position: 1, value: 3, limit: 3 })
        ));

        let new = Csr::<Cpu>::new;
        assert!(matches!(new(&[], &[], 3), Err(Error::WrongLength { array: "indptr", .. })));
        assert!(matches!(new(&[1, 1], &[0], 3), Err(Error::InvalidArgument { argument: "indptr[0]", .. })));
        assert!(matches!(
            new(&[0, 2, 1, 3], &[0; 3], 3),
            Err(Error::NotMonotone { position: 2, value: 1, previous: 2, .. })
        ));
        assert!(matches!(new(&[0, 2], &[0; 3], 3), Err(Error::WrongLength { array: "indices", .. })));
        assert!(matches!(
            new(&[0, 3], &[2, 3, 0], 3),
            Err(Error::IndexOutOfRange { array: "indices", position: 1, value: 3, limit: 3 })
        ));
        assert!(new(&[0], &[], 0).is_ok());
    }

    fn views_of_a_device_are_checked<D: Storage>(device: &D) {
        let upload = |values: &[u32]| device.upload(values).unwrap();
        let (indptr, good, bad) = (upload(&[0, 1, 2]), upload(&[1, 0]), upload(&[0, 7]));
        let a = Csr::from_views(device, D::view(&indptr), D::view(&good), 2).unwrap();
        assert_eq!((a.n_rows(), a.n_edge()), (2, 2));
        let error = Csr::from_views(device, D::view(&indptr), D::view(&bad), 2).unwrap_err();
        assert!(matches!(error, Error::IndexOutOfRange { position: 1, value: 7, limit: 2, .. }));
    }

    #[test]
    fn views_are_checked_on_the_cpu() {
        views_of_a_device_are_checked(&Cpu::<f32>::new());
    }

    #[cfg(feature = "emulate")]
    #[test]
    fn views_are_checked_on_cuda() {
        views_of_a_device_are_checked(&crate::device::Cuda::<f32>::new(0).unwrap());
    }
}
