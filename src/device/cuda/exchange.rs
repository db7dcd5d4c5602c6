//! What devices let other devices of the process read: by a number, which threads can tell each other; and exchange
//! over links. See `cuda/exchange.cu`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::memory::Address;
use super::{Cuda, CudaView, CudaViewMut, Event, Link, dtype, ffi};
use crate::device::{
    Element, Exchange, FeatureElement, LinkFailure, Matrix, MatrixMut, Offer, OfferedRows, Scalar,
    check_matrix_mut, check_scatter_add,
};
use crate::error::{Error, Result, check_length};

/// Memory, and the event after which it holds what was offered.
struct Offered {
    ordinal: usize,
    address: Address,
    bytes: usize,
    ready: Event,
}

#[derive(Default)]
struct Offers {
    last: u64,
    offered: HashMap<u64, Arc<Offered>>,
}

fn offers() -> MutexGuard<'static, Offers> {
    static OFFERS: OnceLock<Mutex<Offers>> = OnceLock::new();
    OFFERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the offer when it is dropped.
struct Withdraw(u64);

impl Drop for Withdraw {
    fn drop(&mut self) {
        offers().offered.remove(&self.0);
    }
}

fn find(number: u64) -> Result<Arc<Offered>> {
    let found = offers().offered.get(&number).cloned();
    found.ok_or_else(|| Error::invalid("offer", number, "one that has not been withdrawn"))
}

/// `Ok` if something that ends after `end` bytes fits an offer.
fn check_end(end: Option<usize>, offered: &Offered) -> Result<()> {
    match end {
        Some(end) if end <= offered.bytes => Ok(()),
        _ => {
            let expected = format!("at most {}, the offer's bytes", offered.bytes);
            Err(Error::invalid("end of the rows to be read", end.unwrap_or(usize::MAX), expected))
        }
    }
}

impl<S: Scalar> Cuda<S> {
    /// What an offer has, which this queue waits for.
    fn taken(&self, number: u64) -> Result<Arc<Offered>> {
        let offered = find(number)?;
        self.driver().wait_for(&offered.ready)?;
        Ok(offered)
    }

    /// Rows of an offered table of `E`s, `cols` wide.
    fn rows_of<E>(&self, rows: &OfferedRows, cols: usize) -> Result<ffi::cohop_offered_rows> {
        let (table, list) = (self.taken(rows.table)?, self.taken(rows.rows)?);
        for offered in [&table, &list] {
            if !self.driver().reaches(offered.ordinal)? {
                let expected = "one whose memory this device reaches";
                return Err(Error::invalid("offer", format!("of device {}", offered.ordinal), expected));
            }
        }
        let Range { start, end } = rows.range;
        if start > end {
            return Err(Error::invalid(
                "range of offered rows",
                format!("{start}..{end}"),
                "a start before the end",
            ));
        }
        check_end(end.checked_mul(size_of::<u32>()), &list)?;
        let n_table = table.bytes / (cols * size_of::<E>()).max(1);
        Ok(ffi::cohop_offered_rows {
            table: table.address.0.cast_const().cast(),
            n_table: n_table as u64,
            rows: list.address.0.cast_const().cast::<u32>().wrapping_add(start),
            n_rows: (end - start) as u64,
        })
    }
}

impl<S: Scalar> Exchange for Cuda<S> {
    type Link = Link;
    const OFFERS: bool = true;
    const MAX_TABLES: usize = ffi::COHOP_MAX_TABLES as usize;

    fn for_rank(&self, rank: usize) -> Result<Self> {
        let ordinal = rank % self.driver().count()?;
        if ordinal == self.driver().ordinal() { Ok(self.clone()) } else { Cuda::new(ordinal) }
    }

    fn offer<T: Element>(&self, x: CudaView<'_, T>) -> Result<Offer> {
        self.stream()?;
        let ready = self.driver().record()?;
        let address = Address(x.pointer().cast_mut().cast());
        let ordinal = self.driver().ordinal();
        let offered = Offered { ordinal, address, bytes: x.len() * size_of::<T>(), ready };
        let mut offers = offers();
        offers.last += 1;
        let number = offers.last;
        offers.offered.insert(number, Arc::new(offered));
        Ok(Offer::new(number, Withdraw(number)))
    }

    fn copy_offered<T: Element>(&self, offer: u64, start: usize, out: CudaViewMut<'_, T>) -> Result<()> {
        self.stream()?;
        let offered = self.taken(offer)?;
        let (start, bytes) = (start * size_of::<T>(), out.len() * size_of::<T>());
        check_end(start.checked_add(bytes), &offered)?;
        let from = offered.address.0.wrapping_add(start);
        // SAFETY: the offer holds as many bytes from there on, `out` is exclusive, and who has made the offer keeps its
        // memory until the copy is done: it waits for an event after it.
        unsafe { self.driver().copy_from_peer(from, out.pointer().cast(), bytes) }
    }

    fn reaches(&self, offer: u64) -> Result<bool> {
        self.driver().reaches(find(offer)?.ordinal)
    }

    fn gather_offered<E: FeatureElement>(
        &self,
        from: &[OfferedRows],
        order: CudaView<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_matrix_mut(&out)?;
        if from.len() > Self::MAX_TABLES {
            return Err(Error::invalid(
                "offered tables",
                from.len(),
                format!("at most {}", Self::MAX_TABLES),
            ));
        }
        check_length("order", order.len(), out.rows)?;
        check_length("order", order.len(), from.iter().map(|rows| rows.range.len()).sum())?;
        let stream = self.stream()?;
        let tables = from.iter().map(|rows| self.rows_of::<E>(rows, out.cols)).collect::<Result<Vec<_>>>()?;
        let (scalar, element, cols) = (dtype::<S>(), dtype::<E>(), out.cols as u64);
        let (n_tables, out) = (tables.len() as u32, out.data.pointer().cast());
        // SAFETY: each table and each list of rows holds as much as it says, and stays until its owner has waited for
        // an event after this; `order` and `out` have as many rows as the lists together.
        let code = unsafe {
            ffi::cohop_gather_offered(
                scalar,
                element,
                cols,
                tables.as_ptr(),
                n_tables,
                order.pointer(),
                out,
                self.status(),
                stream,
            )
        };
        self.check("gather_offered", code)
    }

    fn add_offered(
        &self,
        from: &OfferedRows,
        index: CudaView<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_matrix_mut(&out)?;
        check_length("index", index.len(), from.range.len())?;
        let stream = self.stream()?;
        let table = self.rows_of::<S>(from, out.cols)?;
        let (cols, n_out, out) = (out.cols as u64, out.rows as u64, out.data.pointer().cast());
        // SAFETY: as above; `index` is as long as the list of rows, and `out` has `n_out` rows.
        let code = unsafe {
            ffi::cohop_add_offered(
                dtype::<S>(),
                cols,
                &raw const table,
                index.pointer(),
                n_out,
                out,
                self.status(),
                stream,
            )
        };
        self.check("add_offered", code)
    }

    fn add_rows(
        &self,
        x: Matrix<'_, Self>,
        index: CudaView<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_scatter_add(&x, &index, &out)?;
        let (n_rows, rows) = (x.rows as u64, std::ptr::null());
        let all = ffi::cohop_offered_rows { table: x.data.pointer().cast(), n_table: n_rows, rows, n_rows };
        let (cols, n_out, out, stream) =
            (out.cols as u64, out.rows as u64, out.data.pointer().cast(), self.stream()?);
        // SAFETY: `x` has `n_rows` rows, as many as `index`, and `out` `n_out`, all of `cols` scalars.
        let code = unsafe {
            ffi::cohop_add_offered(
                dtype::<S>(),
                cols,
                &raw const all,
                index.pointer(),
                n_out,
                out,
                self.status(),
                stream,
            )
        };
        self.check("add_rows", code)
    }

    fn pack_rows<T: Element>(
        &self,
        table: CudaView<'_, T>,
        cols: usize,
        index: CudaView<'_, u32>,
        out: CudaViewMut<'_, T>,
    ) -> Result<()> {
        check_length("out", out.len(), index.len() * cols)?;
        let (bytes, n_table) = ((cols * size_of::<T>()) as u64, (table.len() / cols.max(1)) as u64);
        let (rows, stream) = (index.len() as u64, self.stream()?);
        // SAFETY: `table` has `n_table` rows of `bytes` bytes, and `out` as many rows as `index`. No element is of an
        // odd number of bytes but u8, which is refused.
        let code = unsafe {
            if size_of::<T>() == 1 {
                return Err(Error::invalid("elements of packed rows", "u8", "elements of two bytes or more"));
            }
            let (table, out) = (table.pointer().cast(), out.pointer().cast());
            ffi::cohop_pack_rows(bytes, rows, table, n_table, index.pointer(), out, self.status(), stream)
        };
        self.check("pack_rows", code)
    }

    fn new_link_id(&self) -> Result<Vec<u8>> {
        Link::new_id()
    }

    fn link(&self, id: &[u8], rank: usize, size: usize, failure: LinkFailure) -> Result<Link> {
        self.stream()?;
        Link::new(self.driver(), id, [rank, size], failure)
    }

    fn exchange<T: Element>(
        &self,
        link: &Link,
        send: CudaView<'_, T>,
        ranges: &[Range<usize>],
        receive: CudaViewMut<'_, T>,
        receive_counts: &[usize],
    ) -> Result<()> {
        check_length("ranges", ranges.len(), link.size())?;
        check_length("receive_counts", receive_counts.len(), link.size())?;
        check_length("receive", receive.len(), receive_counts.iter().sum())?;
        if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > send.len()) {
            let expected = format!("a range of 0..{}", send.len());
            return Err(Error::invalid("ranges", format!("{range:?}"), expected));
        }
        self.stream()?;
        let bytes = |n: usize| n * size_of::<T>();
        let sends: Vec<_> = ranges
            .iter()
            .map(|range| (send.pointer().wrapping_add(range.start).cast(), bytes(range.len())))
            .collect();
        let mut end = receive.pointer();
        let receives: Vec<_> = receive_counts
            .iter()
            .map(|&count| {
                let start = end;
                end = end.wrapping_add(count);
                (start.cast(), bytes(count))
            })
            .collect();
        // SAFETY: the parts are inside of `send` and `receive`, which is exclusive; memory of this device is used in
        // the order of its streams.
        unsafe { link.exchange(self.driver(), &sends, &receives) }
    }

    fn address<T: Element>(view: CudaView<'_, T>) -> *const u8 {
        view.pointer().cast()
    }

    fn address_mut<T: Element>(view: &mut CudaViewMut<'_, T>) -> *mut u8 {
        view.pointer().cast()
    }
}
