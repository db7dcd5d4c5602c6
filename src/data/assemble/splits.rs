//! Training, validation and test vertices, as lists or masks.

use super::{Arrays, IDS, Source};
use crate::data::npy::{Dtype, NpyArray};
use crate::data::{MAX_SPLITS, Split};
use crate::error::{Error, Result, try_capacity, try_collect, try_filled};

const MASKS: &[Dtype] = &[Dtype::U8, Dtype::Bool, Dtype::I8];

/// The split to use, and all published ones.
///
/// A part of a split is `train_idx`, vertices; or `train_mask: [n_vertices]`, or `[n_vertices, n_splits]`; or
/// `train_masks: [n_splits, n_vertices]`.
pub(super) fn splits<S: Source>(
    arrays: &mut Arrays<'_, S>,
    n_vertices: usize,
) -> Result<(Split, Vec<Split>)> {
    let mut lists = [const { None }; 3];
    let mut parts: [Option<Vec<Vec<u32>>>; 3] = [const { None }; 3];
    for (i, part) in ["train", "val", "test"].into_iter().enumerate() {
        if let Some(array) = arrays.vector(&[&format!("{part}_idx")], IDS)? {
            let ids = array.ids()?;
            lists[i] = Some(try_collect("a part of a split", ids.iter().copied(), array.name())?);
        }
        if let Some(array) = arrays.find(&[&format!("{part}_masks")])? {
            let [n_splits, _] = array.matrix()?;
            check_mask(&array, &[n_splits, n_vertices], n_splits)?;
            arrays.converted(&array, MASKS);
            arrays.notes.push(format!("{} is turned into lists of vertices", array.name()));
            parts[i] = Some(members(&array.bytes()?, n_splits, n_vertices, n_vertices, 1)?);
        }
        if let Some(array) = arrays.find(&[&format!("{part}_mask")])? {
            if lists[i].is_some() || parts[i].is_some() {
                return Err(
                    array.error(format!("is there beside {part}_idx or {part}_masks: keep one of them"))
                );
            }
            arrays.converted(&array, MASKS);
            arrays.notes.push(format!("{} is turned into lists of vertices", array.name()));
            match *array.shape() {
                [_, n_splits] => {
                    check_mask(&array, &[n_vertices, n_splits], n_splits)?;
                    parts[i] = Some(members(&array.bytes()?, n_splits, n_vertices, 1, n_splits)?);
                }
                _ => {
                    check_mask(&array, &[n_vertices], 1)?;
                    lists[i] = members(&array.bytes()?, 1, n_vertices, n_vertices, 1)?.pop();
                }
            }
        }
    }
    // Index files beside masks of several splits say which vertices to use.
    let beside = lists.iter().zip(&parts).any(|(list, of_split)| list.is_some() && of_split.is_some());
    let Some(n_splits) = parts.iter().flatten().map(Vec::len).max() else {
        let [train, val, test] = lists.map(Option::unwrap_or_default);
        return Ok((Split { train, val, test }, Vec::new()));
    };
    let size = format_args!("{n_splits} splits of {n_vertices} vertices");
    let mut all = try_filled("splits", Split::default(), n_splits, size)?;
    for (i, part) in ["train", "val", "test"].into_iter().enumerate() {
        let of_split: Vec<Vec<u32>> = match (parts[i].take(), &lists[i]) {
            (Some(of_split), _) => of_split,
            // The same in all splits, as the test vertices often are.
            (None, Some(list)) => try_filled("a split's part", list.clone(), n_splits, size)?,
            (None, None) => {
                let missing = format!("has no array {part}_masks (masks of several splits are there)");
                return Err(Error::format(arrays.source.path(), missing));
            }
        };
        if of_split.len() != n_splits {
            let problem =
                format!("has {} splits in the masks of {part}, {n_splits} in another", of_split.len());
            return Err(Error::format(arrays.source.path(), problem));
        }
        for (split, list) in all.iter_mut().zip(of_split) {
            match i {
                0 => split.train = list,
                1 => split.val = list,
                _ => split.test = list,
            }
        }
    }
    let split = if beside {
        let [train, val, test] = lists.map(Option::unwrap_or_default);
        Split { train, val, test }
    } else {
        all.first().cloned().unwrap_or_default()
    };
    Ok((split, all))
}

fn check_mask(array: &NpyArray, expected: &[usize], n_splits: usize) -> Result<()> {
    if array.shape() != expected {
        return Err(array.error(format!("has shape {:?}, expected {expected:?}", array.shape())));
    }
    if n_splits > MAX_SPLITS {
        return Err(array.error(format!("has {n_splits} splits: at most {MAX_SPLITS} are supported")));
    }
    Ok(())
}

/// The vertices of each split: vertex v of split k is at `k * of_split + v * of_vertex` of the mask.
fn members(
    mask: &[u8],
    n_splits: usize,
    n_vertices: usize,
    of_split: usize,
    of_vertex: usize,
) -> Result<Vec<Vec<u32>>> {
    let (what, asked) = ("the parts of splits", format_args!("{n_splits} splits of {n_vertices} vertices"));
    let split = |k| {
        let is_member = |v: &usize| mask[k * of_split + v * of_vertex] != 0;
        let mut members = try_capacity(what, (0..n_vertices).filter(is_member).count(), asked)?;
        // No more than were counted, if the file is changed meanwhile.
        let n = members.capacity();
        members.extend((0..n_vertices).filter(is_member).take(n).map(|v| v as u32));
        Ok(members)
    };
    (0..n_splits).map(split).collect()
}
