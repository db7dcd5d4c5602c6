//! Classes of vertices, from tables of numbers.

use std::path::Path;

use cohop::data::MAX_CLASSES;
use cohop::data::npy::{Dtype, Writer};
use cohop::{Error, Result};

use crate::array::Place;
use crate::sort::Sorter;
use crate::table::Table;
use crate::{Found, Progress, ReadOptions};

/// Which column of a table of labels is that of the classes.
pub(crate) fn column(place: &Place, n_columns: usize, options: &ReadOptions) -> Result<usize> {
    match options.label_column {
        Some(column) if column >= n_columns => {
            let expected = format!("below {n_columns}, the number of columns of {place}");
            Err(Error::invalid("--label-column", column, expected))
        }
        None if n_columns > 1 => Err(place.error(format!(
            "has {n_columns} columns of labels, but a vertex has one class here: choose one by --label-column, 0 to {}",
            n_columns - 1
        ))),
        column => Ok(column.unwrap_or(0)),
    }
}

/// A class; NaN and -1 are none, which is -1. An error is a text.
pub(crate) fn class(value: f64) -> Result<i32, String> {
    match value {
        _ if value.is_nan() => Ok(-1),
        _ if value.fract() == 0.0 && value >= -1.0 && value < MAX_CLASSES as f64 => Ok(value as i32),
        _ => Err(format!("label {value}: expected a class, 0 to {}, or NaN for none", MAX_CLASSES - 1)),
    }
}

/// Writes `labels.npy`, and `multi_labels.npy` if there are several columns. `parts` has, for each range of vertices,
/// its name, their number and where their labels are, if they have any. `hint` is what to add to the message where
/// there are so many labels, and not one for each vertex.
pub(crate) fn write(
    folder: &Path,
    parts: &[(&str, u64, Option<&Place>)],
    options: &ReadOptions,
    hint: &dyn Fn(u64) -> &'static str,
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<()> {
    let mut n_columns = 1;
    for place in parts.iter().filter_map(|&(_, _, place)| place) {
        let columns = Table::open(place)?.columns();
        if n_columns > 1 && columns != n_columns {
            let problem = format!("has {columns} columns of labels, those of another type have {n_columns}");
            return Err(place.error(problem));
        }
        n_columns = columns;
    }
    let mut writer = Writer::create(&folder.join("labels.npy"), Dtype::I32, None)?;
    found.files.push("labels.npy".into());
    let mut all = None;
    if n_columns > 1 {
        let name = "multi_labels.npy";
        all = Some(Writer::create(&folder.join(name), Dtype::F32, Some(n_columns))?);
        found.files.push(name.into());
    }
    let none = vec![f32::NAN; n_columns];
    let (mut largest, mut n_none) = (-1, 0);
    for &(name, n, place) in parts {
        let Some(place) = place else {
            for _ in 0..n {
                writer.write(&[-1i32])?;
                all.as_mut().map_or(Ok(()), |all| all.write(&none))?;
            }
            continue;
        };
        let mut table = Table::open(place)?;
        let column = column(place, n_columns, options)?;
        while let Some(row) = table.next()? {
            let label = class(row[column]);
            if let Some(all) = &mut all {
                let row: Vec<f32> = row.iter().map(|&v| v as f32).collect();
                all.write(&row)?;
            }
            let label = label.map_err(|problem| table.error(problem))?;
            largest = largest.max(label);
            n_none += u64::from(label < 0);
            writer.write(&[label])?;
            if table.n_given() % (1 << 16) == 0 {
                progress("reading labels", table.part())?;
            }
        }
        if table.n_given() != n {
            let rows = table.n_given();
            let (of_type, hint) = (of_type(name), hint(rows));
            return Err(place.error(format!("has {rows} labels, there are {n} vertices{of_type}{hint}")));
        }
    }
    writer.finish()?;
    if let Some(all) = all {
        all.finish()?;
        let column = options.label_column.unwrap_or(0);
        found.notes.push(format!(
            "labels.npy is column {column} of {n_columns}; all are in multi_labels.npy, which is not used yet"
        ));
    }
    if n_none > 0 {
        found.notes.push(format!("{n_none} labels are NaN or -1: these vertices have none"));
    }
    if found.n_classes.is_none() && largest >= 0 {
        found.n_classes = Some(largest as usize + 1);
    }
    Ok(())
}

/// ` of type paper`, for messages; nothing where there are no types.
pub(crate) fn of_type(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" of type {name}") }
}

/// Labels of some vertices, in any order.
pub(crate) struct Scattered {
    /// The vertex in the upper half, the class in the lower one.
    sorter: Sorter<u64>,
    largest: i32,
    n_labels: u64,
}

impl Scattered {
    /// Collects in `memory` bytes, and files in `folder`.
    pub(crate) fn new(folder: &Path, memory: u64) -> Self {
        Scattered { sorter: Sorter::new(folder, memory), largest: -1, n_labels: 0 }
    }

    /// The class of a vertex, -1 for none.
    pub(crate) fn push(&mut self, vertex: u32, label: i32) -> Result<()> {
        if label >= 0 {
            self.largest = self.largest.max(label);
            self.n_labels += 1;
            self.sorter.push(u64::from(vertex) << 32 | u64::from(label as u32))?;
        }
        Ok(())
    }

    /// Writes `labels.npy` of `n` vertices, with -1 for those that got none, unless no vertex got one. `conflict` makes
    /// the error of a vertex that got several.
    pub(crate) fn write(
        self,
        folder: &Path,
        n: u64,
        found: &mut Found,
        conflict: &dyn Fn(u32, [i32; 2]) -> Error,
    ) -> Result<()> {
        if self.n_labels == 0 {
            return Ok(());
        }
        let mut writer = Writer::create(&folder.join("labels.npy"), Dtype::I32, None)?;
        let mut last: Option<(u64, i32)> = None;
        let mut next = 0;
        self.sorter.finish(&mut |record| {
            let (vertex, label) = (record >> 32, record as u32 as i32);
            match last {
                Some((same, other)) if same == vertex && other != label => {
                    return Err(conflict(vertex as u32, [other, label]));
                }
                Some((same, _)) if same == vertex => return Ok(()),
                _ => {}
            }
            last = Some((vertex, label));
            for _ in next..vertex {
                writer.write(&[-1i32])?;
            }
            next = vertex + 1;
            writer.write(&[label])
        })?;
        for _ in next..n {
            writer.write(&[-1i32])?;
        }
        writer.finish()?;
        found.files.push("labels.npy".into());
        found.n_classes = found.n_classes.or(Some(self.largest as usize + 1));
        Ok(())
    }
}
