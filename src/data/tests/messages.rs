//! Errors of loading name the file, and in an archive the array.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::super::npy::{self, Dtype};
use super::*;

/// The arrays of a folder as an archive, some under other names.
fn pack(folder: &Path, archive: &Path, names: &[(&str, &str)]) {
    let mut writer = ZipWriter::new(std::fs::File::create(archive).unwrap());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|extension| extension == "npy") {
            let renamed = names.iter().find(|(from, _)| *from == name).map_or(name, |(_, to)| to);
            writer.start_file(format!("{renamed}.npy"), SimpleFileOptions::default()).unwrap();
            writer.write_all(&std::fs::read(&path).unwrap()).unwrap();
        }
    }
    writer.finish().unwrap();
}

/// Damages one array of [`small`]: the messages of the folder, and of an archive where `labels` is `y` and features are
/// `x`, without the paths of folders.
fn messages<T: bytemuck::Pod>(name: &str, dtype: Dtype, shape: &[usize], data: &[T]) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let graph = (*small(dense()).graph).clone().with_edge_weights(vec![1.0; 4]).unwrap();
    let mut dataset = small(dense());
    dataset.graph = graph.with_edge_types(vec![0; 4], 1).unwrap().into();
    dataset.write(folder.path()).unwrap();
    npy::write(&folder.path().join(format!("{name}.npy")), dtype, shape, data).unwrap();
    let archive = folder.path().join("set.npz");
    pack(folder.path(), &archive, &[("labels", "y"), ("feat", "x")]);
    let prefix = format!("{}/", folder.path().display());
    [folder.path(), archive.as_path()].map(|path| {
        let message = message(load(path));
        message.strip_prefix(&prefix).unwrap_or_else(|| panic!("no path in {message:?}")).to_owned()
    })
}

#[test]
fn entries_that_are_not_valid_are_told_with_their_file() {
    let of_indices = messages("indices", Dtype::U32, &[4], &[3u32, 0, 100, 1]);
    let problem = "indices[2] = 100 is out of range: expected a value below 4";
    assert_eq!(of_indices, [format!("indices.npy: {problem}"), format!("set.npz: {problem}")]);

    let of_weights = messages("edge_weight", Dtype::F32, &[4], &[f32::NAN, 0.0, 1.0, 1.0]);
    let problem = "edge_weight is NaN at position 0: expected a finite number of at least 0";
    assert_eq!(of_weights, [format!("edge_weight.npy: {problem}"), format!("set.npz: {problem}")]);

    let of_offsets = messages("indptr", Dtype::U64, &[5], &[1u64, 1, 3, 3, 4]);
    let problem = "indptr[0] is 1: expected 0";
    assert_eq!(of_offsets, [format!("indptr.npy: {problem}"), format!("set.npz: {problem}")]);

    let of_vertices = messages("val_idx", Dtype::U32, &[1], &[4u32]);
    let problem = "val_idx[0] = 4 is out of range: expected a value below 4";
    assert_eq!(of_vertices, [format!("val_idx.npy: {problem}"), format!("set.npz: {problem}")]);
}

#[test]
fn arrays_of_the_wrong_length_are_told_with_their_file() {
    let of_labels = messages("labels", Dtype::I32, &[3], &[0, 1, 2]);
    let problem = "labels has 3 elements, expected 4";
    assert_eq!(of_labels, [format!("labels.npy: {problem}"), format!("set.npz: array y: {problem}")]);

    let of_features = messages("feat", Dtype::F32, &[2, 2], &[1f32; 4]);
    let problem = "shape mismatch in data set: features is [2, 2], required is [4, 2]";
    assert_eq!(of_features, [format!("feat.npy: {problem}"), format!("set.npz: array x: {problem}")]);

    let of_types = messages("edge_type", Dtype::U16, &[1], &[0u16]);
    let problem = "edge_type has 1 element, expected 4";
    assert_eq!(of_types, [format!("edge_type.npy: {problem}"), format!("set.npz: {problem}")]);
}

#[test]
fn labels_beyond_the_number_of_classes_are_told_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    small(dense()).write(folder.path()).unwrap();
    std::fs::write(folder.path().join("meta.json"), r#"{"n_classes": 2}"#).unwrap();
    let expected = format!(
        "{}/labels.npy: labels[1] = 2 is out of range: expected a value below 2",
        folder.path().display()
    );
    assert_eq!(message(load(folder.path())), expected);
}

/// Sparse rows are checked again where they are used.
#[test]
fn sparse_features_that_are_changed_are_told_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    small(sparse()).write(folder.path()).unwrap();
    let Features::Sparse(features) = load(folder.path()).unwrap().features else { panic!("not sparse") };
    let overwrite = |name: &str, at: u64, bytes: &[u8]| {
        let path = folder.path().join(format!("{name}.npy"));
        let mut file = std::fs::File::options().write(true).open(&path).unwrap();
        file.seek(SeekFrom::End(-(at as i64))).unwrap();
        file.write_all(bytes).unwrap();
        path.display().to_string()
    };
    let last = features.n_rows() - 1;
    let file = overwrite("feat_indices", 4, &99u32.to_le_bytes());
    let error = message(features.checked_row(last));
    assert!(error.starts_with(&file) && error.contains("= 99"), "{error}");
    let file = overwrite("feat_indptr", 8, &77u64.to_le_bytes());
    let error = message(features.checked_row(last));
    assert!(error.starts_with(&file) && error.contains("= 77"), "{error}");
    let file = overwrite("feat_indptr", 8, &0u64.to_le_bytes());
    let error = message(features.checked_row(last));
    assert!(error.starts_with(&file) && error.contains("is below"), "{error}");
}
