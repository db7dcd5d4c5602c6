//! Kernel family *exchange*: rows between the memories of devices.
//!
//! Devices of one process may read what others [offer](Exchange::offer), by copies or, where one reaches the other's
//! memory, by kernels. Devices anywhere exchange memory over a [link](Exchange::link), which a library keeps (NCCL
//! between GPUs). The CPU has neither: the host's memory is simply read, or sent.

use std::any::Any;
use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::Arc;

use super::cpu::Cpu;
use super::{Element, FeatureElement, MatrixMut, Scalar, Storage};
use crate::error::{Error, Result, check_length};

/// Memory of a device that others of the process may read, until this is dropped.
pub struct Offer {
    number: u64,
    _withdraw: Box<dyn Any + Send>,
}

impl Offer {
    /// An offer that ends when `withdraw` is dropped.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(super) fn new(number: u64, withdraw: impl Any + Send) -> Self {
        Offer { number, _withdraw: Box::new(withdraw) }
    }

    /// What others ask for it by; no other offer of the process has the same.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({})", self.number)
    }
}

/// Some rows of an offered table: those that `rows[range]` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedRows {
    /// The number of the offer of a table, of rows of floating-point numbers.
    pub table: u64,
    /// The number of the offer of a list of `u32`, rows of the table.
    pub rows: u64,
    /// Which part of the list.
    pub range: Range<usize>,
}

/// Tells why those on the other ends of a link will not do their part any more; `None` as long as they may.
pub type LinkFailure = Arc<dyn Fn() -> Option<Error> + Send + Sync>;

/// Exchange of memory between devices.
///
/// All calls queue work, for which nobody on the host waits.
pub trait Exchange: Storage {
    /// One device's end of a connection to others.
    type Link: Debug + Send + Sync + 'static;

    /// Whether devices of this kind can read each other's memory within a process, by [offers](Exchange::offer).
    const OFFERS: bool;

    /// The most tables of [`gather_offered`](Exchange::gather_offered).
    const MAX_TABLES: usize;

    /// A device of this kind for number `rank` of several processing elements of this machine: GPU number `rank` modulo
    /// the number of GPUs; the same CPU.
    ///
    /// Errors: the device cannot be opened.
    fn for_rank(&self, rank: usize) -> Result<Self>;

    /// Lets other devices of the same process read `x`, as it is when the work given to this queue so far is done.
    ///
    /// Who makes an offer must keep `x` unchanged until those that read it are done: to be waited for by offers of
    /// theirs, made after it, of nothing.
    ///
    /// Errors: devices of this kind cannot, or the device fails.
    fn offer<T: Element>(&self, x: Self::View<'_, T>) -> Result<Offer>;

    /// `out[i] = x[start + i]`, where `x` is what another device, or this one, has offered by this number; after the
    /// work that made it. An `out` without elements only orders the two queues.
    ///
    /// Errors: there is no such offer, it has fewer elements, or the device fails.
    fn copy_offered<T: Element>(&self, offer: u64, start: usize, out: Self::ViewMut<'_, T>) -> Result<()>;

    /// Whether this device's kernels reach what the offer has, so that [`gather_offered`](Exchange::gather_offered) and
    /// [`add_offered`](Exchange::add_offered) can read it.
    ///
    /// Errors: there is no such offer, or the device fails.
    fn reaches(&self, offer: u64) -> Result<bool>;

    /// `out[order[j], :] = the j-th of all rows`, where those of `from[0]` come first; after the work that made the
    /// offers. One kernel, which reads the tables where they are.
    ///
    /// Errors: more tables than [`MAX_TABLES`](Exchange::MAX_TABLES); `order` is not as long as there are rows; an
    /// offer that there is not, that has fewer elements, or that is out of reach; rows out of range (see
    /// [`Storage::synchronize`]); or the device fails.
    fn gather_offered<E: FeatureElement>(
        &self,
        from: &[OfferedRows],
        order: Self::View<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// `out[index[k], :] += the k-th row of from`; after the work that made the offers. No number is in `index` twice.
    ///
    /// Errors: those of [`gather_offered`](Exchange::gather_offered).
    fn add_offered(
        &self,
        from: &OfferedRows,
        index: Self::View<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// `out[i, :] = table[index[i], :]`, rows of `cols` elements, as they are: to be sent.
    ///
    /// Errors: `out` is not as long as the rows, an index that is out of range (see [`Storage::synchronize`]), elements
    /// of one byte, or the device fails.
    fn pack_rows<T: Element>(
        &self,
        table: Self::View<'_, T>,
        cols: usize,
        index: Self::View<'_, u32>,
        out: Self::ViewMut<'_, T>,
    ) -> Result<()>;

    /// What those that make a [`link`](Exchange::link) are to be told by one of them.
    ///
    /// Errors: devices of this kind have none, or its library is not there.
    fn new_link_id(&self) -> Result<Vec<u8>>;

    /// This device's end of a link between `size` devices, of processes anywhere, of which it is number `rank`. All of
    /// them call it at the same time, with the same `id`. While the host waits for work of this device it asks
    /// `failure` from time to time, so that it does not wait for what does not come.
    ///
    /// Errors: those of the library, also where two of them are one device.
    fn link(&self, id: &[u8], rank: usize, size: usize, failure: LinkFailure) -> Result<Self::Link>;

    /// Sends `send[ranges[q]]` to each device `q` of the link, and receives `receive_counts[q]` elements from it, which
    /// land in `receive` in rank order. All of them call it in the same order.
    ///
    /// Errors: numbers of ranges or counts that are not that of the link, ranges outside of `send`, counts that do not
    /// add up to the length of `receive`, and those of the library.
    fn exchange<T: Element>(
        &self,
        link: &Self::Link,
        send: Self::View<'_, T>,
        ranges: &[Range<usize>],
        receive: Self::ViewMut<'_, T>,
        receive_counts: &[usize],
    ) -> Result<()>;

    /// Where a view's first element is, for libraries that take addresses of this device's memory (MPI that is aware of
    /// CUDA). To be accessed only between a [`synchronize`](Storage::synchronize) and the next work on it.
    fn address<T: Element>(view: Self::View<'_, T>) -> *const u8;

    /// [`address`](Exchange::address) of what is written.
    fn address_mut<T: Element>(view: &mut Self::ViewMut<'_, T>) -> *mut u8;
}

/// The CPU has no links.
#[derive(Debug)]
pub enum NoLink {}

impl<S: Scalar> Exchange for Cpu<S> {
    type Link = NoLink;
    const OFFERS: bool = false;
    const MAX_TABLES: usize = 0;

    fn for_rank(&self, _: usize) -> Result<Self> {
        Ok(self.clone())
    }

    fn offer<T: Element>(&self, _: &[T]) -> Result<Offer> {
        Err(not_here())
    }

    fn copy_offered<T: Element>(&self, _: u64, _: usize, _: &mut [T]) -> Result<()> {
        Err(not_here())
    }

    fn reaches(&self, _: u64) -> Result<bool> {
        Err(not_here())
    }

    fn gather_offered<E: FeatureElement>(
        &self,
        _: &[OfferedRows],
        _: &[u32],
        _: MatrixMut<'_, Self>,
    ) -> Result<()> {
        Err(not_here())
    }

    fn add_offered(&self, _: &OfferedRows, _: &[u32], _: MatrixMut<'_, Self>) -> Result<()> {
        Err(not_here())
    }

    fn pack_rows<T: Element>(&self, table: &[T], cols: usize, index: &[u32], out: &mut [T]) -> Result<()> {
        check_length("out", out.len(), index.len() * cols)?;
        let n_table = table.len() / cols.max(1);
        for (position, (&row, out)) in index.iter().zip(out.chunks_exact_mut(cols.max(1))).enumerate() {
            let row = row as usize;
            if row >= n_table {
                let (array, position, value) = ("index", position as u64, row as i64);
                return Err(Error::IndexOutOfRange { array, position, value, limit: n_table as u64 });
            }
            out.copy_from_slice(&table[row * cols..(row + 1) * cols]);
        }
        Ok(())
    }

    fn new_link_id(&self) -> Result<Vec<u8>> {
        Err(not_here())
    }

    fn link(&self, _: &[u8], _: usize, _: usize, _: LinkFailure) -> Result<NoLink> {
        Err(not_here())
    }

    fn exchange<T: Element>(
        &self,
        link: &NoLink,
        _: &[T],
        _: &[Range<usize>],
        _: &mut [T],
        _: &[usize],
    ) -> Result<()> {
        match *link {}
    }

    fn address<T: Element>(view: &[T]) -> *const u8 {
        view.as_ptr().cast()
    }

    fn address_mut<T: Element>(view: &mut &mut [T]) -> *mut u8 {
        view.as_mut_ptr().cast()
    }
}

/// The error of ways that the CPU has not.
fn not_here() -> Error {
    Error::invalid("device", "the CPU", "one whose memory is not the host's, such as a GPU")
}
