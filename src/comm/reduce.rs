//! Reductions over PEs: which PE adds up what, and in which order.

use std::ops::Range;

#[cfg(any(test, feature = "mpi"))]
use crate::comm::parts;
#[cfg(any(test, feature = "mpi"))]
use crate::device::Element;
#[cfg(any(test, feature = "mpi"))]
use crate::error::Result;

/// The range of `len` elements that PE `rank` of `n_pes` adds up. Shares are consecutive, and differ in length by one
/// at most.
pub(crate) fn rank_range(len: usize, n_pes: usize, rank: usize) -> Range<usize> {
    let start = |rank: usize| rank * (len / n_pes) + rank.min(len % n_pes);
    start(rank)..start(rank + 1)
}

/// `result[i] = combine(result[i], next[i])`. Called for one PE after another, in rank order.
pub(super) fn accumulate<T: Copy>(result: &mut [T], next: &[T], combine: impl Fn(T, T) -> T) {
    debug_assert_eq!(result.len(), next.len());
    for (sum, &value) in result.iter_mut().zip(next) {
        *sum = combine(*sum, value);
    }
}

/// A reduction of `values` over PEs, by two exchanges: each PE adds up its share of all PEs' values, in rank order, and
/// sends it to all. The same bits as between threads.
///
/// `exchange(send, receive)` sends `send[q]` to each PE `q`, and fills `receive[q]` from it.
#[cfg(any(test, feature = "mpi"))]
pub(super) fn reduce_by_exchanges<T: Element>(
    rank: usize,
    n_pes: usize,
    values: &mut [T],
    combine: impl Fn(T, T) -> T + Copy,
    mut exchange: impl FnMut(&[&[u8]], Vec<&mut [u8]>) -> Result<()>,
) -> Result<()> {
    let len = values.len();
    let share_of = |rank| rank_range(len, n_pes, rank);
    let mine = share_of(rank).len();
    let mut shares = vec![T::zeroed(); n_pes * mine];
    let send: Vec<&[u8]> = (0..n_pes).map(|to| bytemuck::cast_slice(&values[share_of(to)])).collect();
    let lengths = (0..n_pes).map(|_| mine * size_of::<T>());
    exchange(&send, parts(bytemuck::cast_slice_mut(&mut shares), lengths))?;
    let (total, others) = shares.split_at_mut(mine);
    // Without a share there is nothing to add up.
    for other in others.chunks_exact(mine.max(1)) {
        accumulate(total, other, combine);
    }
    let send: Vec<&[u8]> = vec![bytemuck::cast_slice(total); n_pes];
    let lengths = (0..n_pes).map(|rank| share_of(rank).len() * size_of::<T>());
    exchange(&send, parts(bytemuck::cast_slice_mut(values), lengths))
}

/// The larger one, the first of equals (0 and -0 are), NaN if one is: unlike with [`f64::max`], the bits are the same
/// everywhere.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Stage, Sum, threads};

    #[test]
    fn shares_cover_everything_once_and_evenly() {
        for n_pes in 1..=9 {
            for len in (0..40).chain([usize::MAX]) {
                let shares: Vec<_> = (0..n_pes).map(|rank| rank_range(len, n_pes, rank)).collect();
                assert_eq!((shares[0].start, shares[n_pes - 1].end), (0, len));
                assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
                let lengths = || shares.iter().map(ExactSizeIterator::len);
                assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1, "{shares:?}");
            }
        }
    }

    #[test]
    fn two_exchanges_give_the_bits_that_threads_do() {
        for n_pes in 1..=5 {
            for len in [0, 1, 4, 37, 2000] {
                threads::run(n_pes, |communicator| {
                    let rank = communicator.rank();
                    // Of very different magnitudes: another order would round differently.
                    let value =
                        |i: usize| 10f32.powi(((i * 7 + rank * 3) % 9) as i32 - 4) / (1 + i + rank) as f32;
                    let mut values: Vec<f32> = (0..len).map(value).collect();
                    let mut expected = values.clone();
                    communicator.all_reduce_sum(Stage::Other, Sum::F32(&mut expected))?;
                    let exchange = |send: &[&[u8]], receive: Vec<&mut [u8]>| {
                        let send_bytes: Vec<usize> = send.iter().map(|part| part.len()).collect();
                        let receive_bytes: Vec<usize> = receive.iter().map(|part| part.len()).collect();
                        let send = send.concat();
                        let received = communicator.all_to_all_v_new(
                            Stage::Other,
                            &send,
                            &send_bytes,
                            &receive_bytes,
                        )?;
                        let mut rest = &received[..];
                        for part in receive {
                            part.copy_from_slice(rest.split_off(..part.len()).unwrap());
                        }
                        Ok(())
                    };
                    reduce_by_exchanges(rank, n_pes, &mut values, |a, b| a + b, exchange)?;
                    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&values), bits(&expected), "{n_pes} PEs, {len} elements");
                    Ok(())
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn nan_wins_and_the_first_of_equals_stays() {
        assert_eq!(larger(1.0, 2.0), 2.0);
        assert_eq!(larger(2.0, 1.0), 2.0);
        assert!(larger(f64::NAN, 1.0).is_nan() && larger(1.0, f64::NAN).is_nan());
        assert!(larger(0.0, -0.0).is_sign_positive() && larger(-0.0, 0.0).is_sign_negative());
    }
}
