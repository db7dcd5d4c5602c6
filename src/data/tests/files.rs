//! Folders and archives: round trips, mapping, foreign dtypes, and every kind of damage.

use std::io::Write;
use std::path::{Path, PathBuf};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::super::npy::{self, Dtype};
use super::*;

fn write_folder(dataset: &Dataset) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    dataset.write(folder.path()).unwrap();
    folder
}

fn npy_path(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    folder.path().join(format!("{name}.npy"))
}

fn assert_same(a: &Dataset, b: &Dataset) {
    assert_eq!(a.graph.indptr(), b.graph.indptr());
    assert_eq!(a.graph.indices(), b.graph.indices());
    assert_eq!(a.graph.edge_type(), b.graph.edge_type());
    assert_eq!(a.graph.edge_weight(), b.graph.edge_weight());
    assert_eq!(a.graph.n_relations(), b.graph.n_relations());
    assert_eq!(a.labels[..], b.labels[..]);
    assert_eq!((&a.name, a.n_classes), (&b.name, b.n_classes));
    assert_eq!((&a.train_idx, &a.val_idx, &a.test_idx), (&b.train_idx, &b.val_idx, &b.test_idx));
    assert_eq!(a.splits, b.splits);
    assert_eq!(a.vertex_type.as_deref(), b.vertex_type.as_deref());
    match (&a.features, &b.features) {
        (Features::None, Features::None) => {}
        (Features::F32(a), Features::F32(b)) => assert_eq!(a.data(), b.data()),
        (Features::F16(a), Features::F16(b)) => assert_eq!(a.data(), b.data()),
        (Features::Bf16(a), Features::Bf16(b)) => assert_eq!(a.data(), b.data()),
        (Features::Sparse(a), Features::Sparse(b)) => {
            assert_eq!((a.indptr(), a.indices(), a.values()), (b.indptr(), b.indices(), b.values()));
        }
        (a, b) => panic!("{a:?} is not {b:?}"),
    }
    assert_eq!(a.features.dim(), b.features.dim());
}

#[test]
fn folders_hold_every_form_and_are_mapped() {
    let forms = [
        Features::None,
        dense(),
        dense().to_dtype(FeatureDtype::F16).unwrap(),
        dense().to_dtype(FeatureDtype::Bf16).unwrap(),
        sparse(),
    ];
    // One folder for all: nothing of the one before may be left.
    let folder = tempfile::tempdir().unwrap();
    for (features, everything) in forms.iter().zip([false, true, true, false, true]) {
        let mut dataset = small(features.clone());
        if everything {
            let graph = (*dataset.graph).clone().with_edge_types(vec![0, 1, 1, 0], 3).unwrap();
            dataset.graph = graph.with_edge_weights(vec![0.5, 1.0, 0.0, 2.0]).unwrap().into();
            dataset.vertex_type = Some(vec![0, 0, 7, 1].into());
            let second = Split { train: vec![3], val: vec![], test: vec![0, 1] };
            dataset.splits = vec![Split { train: vec![0, 2], val: vec![3], test: vec![1] }, second];
        }
        dataset.write(folder.path()).unwrap();
        let again = load(folder.path()).unwrap();
        assert_same(&again, &dataset);
        let summary = again.summary().unwrap();
        let lists = 4 * (4 + if everything { 7 } else { 0 });
        assert_eq!(summary.bytes_in_memory, lists, "all but the splits is mapped: {summary}");
        assert_eq!(summary.bytes_mapped, dataset.summary().unwrap().bytes_in_memory - lists);
        match &again.features {
            Features::F32(d) => assert!(d.array().is_mapped()),
            Features::F16(d) => assert!(d.array().is_mapped()),
            Features::Bf16(d) => assert!(d.array().is_mapped()),
            Features::None | Features::Sparse(_) => {}
        }
        // Read back from the maps, over the files that are mapped.
        again.write(folder.path()).unwrap();
        assert_same(&load(folder.path()).unwrap(), &dataset);
        assert_same(&again, &dataset);
    }
}

#[test]
fn mapped_features_are_checked_on_demand() {
    let folder = write_folder(&small(dense()));
    let mut data = vec![0f32; 8];
    data[5] = f32::NAN;
    npy::write(&npy_path(&folder, "feat"), Dtype::F32, &[4, 2], &data).unwrap();
    let dataset = load(folder.path()).unwrap();
    // As of an archive, whose features are checked when they are read.
    let file = npy_path(&folder, "feat").display().to_string();
    let problem = "features has the value NaN in row 2, column 1: expected a finite number";
    let expected = format!("{file}: {problem}");
    assert_eq!(message(dataset.features.check_finite()), expected);
    assert_eq!(message(dataset.features.check_rows(&[0, 2])), expected);
    assert_eq!(message(dataset.features.to_dtype(FeatureDtype::F16)), expected);
    data[5] = 1e6;
    npy::write(&npy_path(&folder, "feat"), Dtype::F32, &[4, 2], &data).unwrap();
    let error = message(load(folder.path()).unwrap().features.to_dtype(FeatureDtype::F16));
    assert!(error.starts_with(&file) && error.contains("1000000 in row 2, column 1"), "{error}");
}

#[test]
fn indices_are_read_unless_they_are_trusted() {
    let folder = write_folder(&small(Features::None));
    npy::write(&npy_path(&folder, "indices"), Dtype::U32, &[4], &[3u32, 0, 9, 1]).unwrap();
    assert!(message(load(folder.path())).contains("indices.npy: indices[2] = 9 is out of range"));
    let trusting = LoadOptions { trust_indices: true };
    assert_eq!(load_with(folder.path(), &trusting).unwrap().graph.indices(), [3, 0, 9, 1]);
    // Offsets are checked all the same.
    npy::write(&npy_path(&folder, "indptr"), Dtype::U64, &[5], &[0u64, 3, 2, 3, 4]).unwrap();
    assert!(message(load_with(folder.path(), &trusting)).contains("indptr.npy: indptr[2] = 2 is below"));
}

#[test]
fn other_integer_types_are_read() {
    let dataset = small(dense());
    let folder = write_folder(&dataset);
    let write = |name: &str, dtype, values: &[i64]| {
        let path = npy_path(&folder, name);
        let len = [values.len()];
        match dtype {
            Dtype::I64 => npy::write(&path, dtype, &len, values),
            Dtype::I32 => {
                npy::write(&path, dtype, &len, &values.iter().map(|&v| v as i32).collect::<Vec<_>>())
            }
            Dtype::I16 => {
                npy::write(&path, dtype, &len, &values.iter().map(|&v| v as i16).collect::<Vec<_>>())
            }
            Dtype::I8 => npy::write(&path, dtype, &len, &values.iter().map(|&v| v as i8).collect::<Vec<_>>()),
            other => panic!("{other:?}"),
        }
        .unwrap();
    };
    let indptr: Vec<i64> = dataset.graph.indptr().iter().map(|&v| v as i64).collect();
    let indices: Vec<i64> = dataset.graph.indices().iter().map(|&v| i64::from(v)).collect();
    let labels: Vec<i64> = dataset.labels.iter().map(|&v| i64::from(v)).collect();
    for dtype in [Dtype::I64, Dtype::I32, Dtype::I16, Dtype::I8] {
        write("indptr", dtype, &indptr);
        write("indices", dtype, &indices);
        write("labels", dtype, &labels);
        write("train_idx", dtype, &[0, 2]);
        assert_same(&load(folder.path()).unwrap(), &dataset);
    }
    // Those of the same bits are mapped.
    write("indptr", Dtype::I64, &indptr);
    write("indices", Dtype::I32, &indices);
    write("labels", Dtype::I32, &labels);
    assert_eq!(load(folder.path()).unwrap().summary().unwrap().bytes_in_memory, 16);

    write("indices", Dtype::I64, &[3, 1 << 32, 0, 1]);
    let error = message(load(folder.path()));
    assert!(error.contains("array indices: entry 1 is 4294967296, which does not fit"), "{error}");
    write("indices", Dtype::I32, &[3, -1, 2, 1]);
    let negative = "entry 1 is -1: expected a number of at least 0";
    assert!(message(load(folder.path())).contains(&format!("array indices: {negative}")));
    write("indices", Dtype::I64, &[3, -1, 2, 1]);
    assert!(message(load(folder.path())).contains(&format!("array indices: {negative}")));
    write("indices", Dtype::I32, &indices);
    write("indptr", Dtype::I64, &[0, 1, -5, 3, 4]);
    assert!(
        message(load(folder.path())).contains("array indptr: entry 2 is -5: expected a number of at least 0")
    );
}

#[test]
fn wrong_shapes_and_dtypes_are_named() {
    let fails = |name: &str, dtype, shape: &[usize], data: &[u16], expected: &str| {
        let folder = write_folder(&small(dense()));
        npy::write(&npy_path(&folder, name), dtype, shape, data).unwrap();
        let error = message(load(folder.path()));
        assert!(error.contains(expected) && error.contains(&format!("{name}.npy")), "{error}");
    };
    fails("feat", Dtype::U16, &[4, 2], &[0; 8], "has dtype <u2: for bfloat16 meta.json must have");
    fails("feat", Dtype::F16, &[4, 2], &[0; 8], "is f16, but meta.json says f32");
    fails("feat", Dtype::F16, &[8], &[0; 8], "has shape [8], expected two dimensions");
    fails("labels", Dtype::F16, &[4], &[0x3800; 4], "entry 0 is 0.5: expected a whole number");
    fails("labels", Dtype::U16, &[2, 2], &[0; 4], "has shape [2, 2], expected one dimension");
    fails("train_masks", Dtype::F16, &[1, 4], &[0; 4], "has dtype <f2, expected |b1, |u1 or other integers");
    fails("train_mask", Dtype::U16, &[4], &[0; 4], "is there beside train_idx or train_masks");
    fails("train_masks", Dtype::U16, &[1, 3], &[0; 3], "has shape [1, 3], expected [1, 4]");
    fails("indices", Dtype::F16, &[4], &[0; 4], "has dtype <f2, expected integers");
}

#[test]
fn missing_arrays_are_named() {
    let missing = |name: &str, features: Features, expected: &str| {
        let folder = write_folder(&small(features));
        std::fs::remove_file(folder.path().join(name)).unwrap();
        let error = message(load(folder.path()));
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
    };
    missing("indptr.npy", dense(), "has no array indptr (nor edges)");
    missing("indices.npy", dense(), "has no array indices");
    missing("feat_data.npy", sparse(), "has no array feat_data or x_data (sparse features need it)");
    missing("meta.json", sparse(), "has sparse features but no array x_shape, nor feature_dim in meta.json");

    // What is not needed: then classes are counted, vertices have no label.
    let folder = write_folder(&small(dense()));
    std::fs::remove_file(folder.path().join("meta.json")).unwrap();
    assert_eq!(load(folder.path()).unwrap().n_classes, 3);
    std::fs::remove_file(npy_path(&folder, "labels")).unwrap();
    let dataset = load(folder.path()).unwrap();
    assert_eq!((dataset.n_classes, &dataset.labels[..]), (0, &[-1; 4][..]));

    std::fs::write(folder.path().join("meta.json"), "{\"n_classes\": -1}").unwrap();
    let error = message(load(folder.path()));
    assert!(error.contains("meta.json") && error.contains("line 1"), "{error}");
}

#[test]
fn a_file_cut_off_anywhere_is_an_error() {
    let folder = write_folder(&small(dense()));
    let path = npy_path(&folder, "feat");
    let whole = std::fs::read(&path).unwrap();
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = message(load(folder.path()));
        assert!(error.contains("feat.npy"), "{error}");
    }
    std::fs::write(&path, &whole).unwrap();
    load(folder.path()).unwrap();
}

#[test]
fn damaged_headers_are_errors() {
    let folder = write_folder(&small(dense()));
    let path = npy_path(&folder, "labels");
    let refused = |header: &str, expected: &str| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend([0; 64]);
        std::fs::write(&path, bytes).unwrap();
        let error = message(load(folder.path()));
        assert!(error.contains(expected) && error.contains("labels.npy"), "{error}");
    };
    let with = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    refused("", "has no descr");
    refused(&with("'>i4'", "False", "(4,)"), "dtype >i4 is not supported: expected one of |b1 |u1 <u2");
    refused(&with("'|O'", "False", "(4,)"), "dtype |O is not supported");
    refused(&with("[('a', '<i4')]", "False", "(4,)"), "is not a plain number");
    refused(&with("'<i4'", "True", "(4,)"), "Fortran order");
    refused(&with("'<i4'", "False", "4"), "no shape tuple");
    refused(&with("'<i4'", "False", "(-4,)"), "the shape (-4,) is not valid");
    refused(&with("'<i4'", "False", "(99999999999999999999,)"), "is not valid");
    refused(&with("'<i4'", "False", "(4294967296, 4294967296)"), "is too large");
    refused(&with("'<i4'", "False", "(4611686018427387904,)"), "is too large");
    refused(&with("'<i4'", "False", "(1000000000000,)"), "is it truncated?");
    std::fs::write(&path, b"PK\x03\x04 something else").unwrap();
    assert!(message(load(folder.path())).contains("does not begin with the .npy magic bytes"));
    std::fs::write(&path, b"\x93NUMPY\x09\x00\x10\x00").unwrap();
    assert!(message(load(folder.path())).contains(".npy version 9 is not supported"));
}

#[test]
fn an_unaligned_array_is_read_instead_of_mapped() {
    let folder = write_folder(&small(dense()));
    let text = "{'descr': '<i4', 'fortran_order': False, 'shape': (4,)}";
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    assert!(!bytes.len().is_multiple_of(4));
    bytes.extend([2i32, 1, 0, -1].iter().flat_map(|v| v.to_le_bytes()));
    std::fs::write(npy_path(&folder, "labels"), bytes).unwrap();
    let dataset = load(folder.path()).unwrap();
    assert!(!dataset.labels.is_mapped());
    assert_eq!(dataset.labels[..], [2, 1, 0, -1]);
}

type Archive = ZipWriter<std::fs::File>;

/// Adds an array as NumPy writes it; its header is written here, not by what is tested.
fn add<T: bytemuck::Pod>(archive: &mut Archive, name: &str, descr: &str, shape: &str, values: &[T]) {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    archive.start_file(format!("{name}.npy"), SimpleFileOptions::default()).unwrap();
    archive.write_all(b"\x93NUMPY\x01\x00").unwrap();
    archive.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
    archive.write_all(header.as_bytes()).unwrap();
    archive.write_all(bytemuck::cast_slice(values)).unwrap();
}

/// Edges in any order, relations, sparse features: the keys of a heterogeneous archive.
fn write_archive(path: &Path, without: &str, num_nodes: i64) {
    let mut archive = ZipWriter::new(std::fs::File::create(path).unwrap());
    let mut add_i64 = |name: &str, values: &[i64]| {
        if name != without {
            add(&mut archive, name, "<i8", &format!("{},", values.len()), values);
        }
    };
    add_i64("num_nodes", &[num_nodes]);
    add_i64("num_relations", &[3]);
    add_i64("num_classes", &[2]);
    add_i64("y", &[0, -1, 1]);
    add_i64("train_idx", &[2]);
    add_i64("x_indptr", &[0, 1, 1, 3]);
    add_i64("x_indices", &[1, 0, 3]);
    add_i64("x_shape", &[3, 4]);
    add(&mut archive, "edges", "<i4", "3, 2", &[2i32, 1, 0, 1, 1, 0]);
    add(&mut archive, "edge_type", "<i4", "3,", &[2i32, 0, 1]);
    add(&mut archive, "node_type", "<i4", "3,", &[0i32, 1, 0]);
    add(&mut archive, "x_data", "<f4", "3,", &[1f32, 2.0, 3.0]);
    archive.finish().unwrap();
}

#[test]
fn archives_of_edges_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.npz");
    write_archive(&path, "", 3);
    let dataset = load(&path).unwrap();
    assert_eq!((dataset.name.as_str(), dataset.n_classes), ("tiny", 2));
    assert_eq!(
        (dataset.graph.in_neighbors(1), dataset.graph.edge_type()),
        (&[0, 2][..], Some(&[1, 0, 2][..]))
    );
    assert_eq!(dataset.graph.n_relations(), 3);
    assert_eq!(dataset.vertex_type.as_deref(), Some(&[0, 1, 0][..]));
    assert_eq!(dataset.labels[..], [0, -1, 1]);
    assert!(
        matches!(&dataset.features, Features::Sparse(s) if s.row(2) == (&[0, 3], &[2.0, 3.0]) && s.dim() == 4)
    );

    write_archive(&path, "num_nodes", 3);
    assert!(message(load(&path)).contains("tiny.npz: has no array num_nodes (edges needs it)"));
    write_archive(&path, "", 4_000_000_000);
    assert!(message(load(&path)).contains("array num_nodes: is 4000000000, but there are 3 labels"));
    write_archive(&path, "x_indices", 3);
    assert!(message(load(&path)).contains("has no array feat_indices or x_indices"));
    write_archive(&path, "x_shape", 3);
    assert!(message(load(&path)).contains("no array x_shape"));
    write_archive(&path, "num_classes", 3);
    assert_eq!(load(&path).unwrap().n_classes, 2, "one more than the largest label");
}

/// Cut off anywhere the directory at the end is lost; a flipped byte breaks a checksum or what depends on it.
#[test]
fn damaged_archives_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.npz");
    write_archive(&path, "", 3);
    let whole = std::fs::read(&path).unwrap();
    for len in (0..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = message(load(&path));
        assert!(error.contains("tiny.npz") && error.contains("truncated"), "{error}");
    }
    let good = load_bytes(&path, &whole).unwrap();
    let mut refused = 0;
    for position in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[position] ^= 0x41;
        // Names, times and sizes that nothing depends on may change: then what is read is the same, or an array is
        // missing that need not be there. Whatever is read is a valid data set.
        match load_bytes(&path, &bytes) {
            Err(_) => refused += 1,
            Ok(dataset) => {
                dataset.validate().unwrap();
                assert_eq!(dataset.graph.indices(), good.graph.indices(), "byte {position}");
            }
        }
    }
    assert!(refused > whole.len() / 4, "{refused} of {} changes were noticed", whole.len());
}

fn load_bytes(path: &Path, bytes: &[u8]) -> Result<Dataset> {
    std::fs::write(path, bytes).unwrap();
    load(path)
}

#[test]
fn what_is_no_data_set_says_so() {
    let error = message(load("sbmm"));
    assert_eq!(
        error,
        "data is sbmm: expected an existing .npz file or folder, or a built-in data set: sbm, rmat"
    );
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.npz");
    assert!(matches!(load(&absent), Err(Error::Io { path, .. }) if path == absent));
    let expected = "absent.npz: no such file or folder: expected an existing .npz file or folder, or a built-in data \
                    set: sbm, rmat";
    assert!(message(load(&absent)).ends_with(expected));
    assert!(message(load(folder.path())).contains("has no array indptr"));
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "hello").unwrap();
    assert!(message(load(&text)).contains("notes.txt: is not a data set: expected a .npz file or a folder"));
    let not_a_folder = text.join("below");
    assert!(matches!(small(dense()).write(&not_a_folder), Err(Error::Io { .. })));
}

/// What NumPy's users have: masks, booleans, small integers, floats with NaN for no label.
#[test]
fn labels_features_and_masks_of_any_type_are_read() {
    let dataset = small(dense());
    let folder = write_folder(&dataset);
    let write = |name: &str, dtype, shape: &[usize], bytes: &[u8]| {
        npy::write(&npy_path(&folder, name), dtype, shape, bytes).unwrap();
    };
    npy::write(&npy_path(&folder, "labels"), Dtype::F32, &[4], &[0.0, 2.0, f32::NAN, 1.0]).unwrap();
    for part in ["train", "val", "test"] {
        std::fs::remove_file(npy_path(&folder, &format!("{part}_idx"))).unwrap();
    }
    write("train_mask", Dtype::Bool, &[4], &[1, 0, 1, 0]);
    write("val_mask", Dtype::U8, &[4], &[0, 0, 0, 1]);
    npy::write(&npy_path(&folder, "test_mask"), Dtype::I64, &[4], &[0i64, 256, 0, 0]).unwrap();
    let (again, notes) = load_with_notes(folder.path(), &LoadOptions::default()).unwrap();
    assert_same(&again, &dataset);
    let expected = [
        "labels is converted from <f4 to <i4",
        "train_mask is turned into lists of vertices",
        "val_mask is turned into lists of vertices",
        "test_mask is converted from <i8 to |u1",
        "test_mask is turned into lists of vertices",
    ];
    assert_eq!(notes, expected);
    write("feat", Dtype::Bool, &[4, 2], &[0, 1, 1, 1, 0, 0, 1, 0]);
    let expected = [0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0];
    assert!(matches!(&load(folder.path()).unwrap().features, Features::F32(d) if d.data() == expected));
    npy::write(&npy_path(&folder, "feat"), Dtype::I64, &[4, 2], &[-3i64; 8]).unwrap();
    assert!(matches!(&load(folder.path()).unwrap().features, Features::F32(d) if d.data() == [-3.0; 8]));
    npy::write(&npy_path(&folder, "feat"), Dtype::F64, &[4, 2], &[1e300; 8]).unwrap();
    assert!(message(load(folder.path())).contains("array feat: entry 0 is 1e300, which is beyond the range"));
    npy::write(&npy_path(&folder, "feat"), Dtype::F32, &[4, 2], &[1f32; 8]).unwrap();

    // Two splits as columns, the test vertices the same in both.
    write("train_mask", Dtype::Bool, &[4, 2], &[1, 0, 0, 0, 1, 0, 0, 1]);
    write("val_mask", Dtype::Bool, &[4, 2], &[0, 0, 0, 0, 0, 1, 0, 0]);
    let again = load(folder.path()).unwrap();
    let split = |train: &[u32], val: &[u32]| Split { train: train.into(), val: val.into(), test: vec![1] };
    assert_eq!(again.splits, [split(&[0, 2], &[]), split(&[3], &[2])]);
    assert_eq!((again.train_idx, again.test_idx), (vec![0, 2], vec![1]));
}

#[test]
fn rows_that_do_not_ascend_are_sorted() {
    let graph = Graph::from_edges(4, &[(0, 1), (2, 1), (3, 1), (1, 3)]).unwrap();
    let graph = graph.with_edge_types(vec![0, 1, 2, 0], 3).unwrap();
    let mut dataset = small(sparse());
    dataset.graph = graph.with_edge_weights(vec![0.5, 1.0, 2.0, 4.0]).unwrap().into();
    let folder = write_folder(&dataset);
    npy::write(&npy_path(&folder, "indices"), Dtype::I32, &[4], &[3i32, 0, 2, 1]).unwrap();
    npy::write(&npy_path(&folder, "edge_type"), Dtype::U16, &[4], &[2u16, 0, 1, 0]).unwrap();
    npy::write(&npy_path(&folder, "edge_weight"), Dtype::F32, &[4], &[2f32, 0.5, 1.0, 4.0]).unwrap();
    npy::write(&npy_path(&folder, "feat_indices"), Dtype::I32, &[4], &[3i32, 0, 1, 3]).unwrap();
    npy::write(&npy_path(&folder, "feat_data"), Dtype::F32, &[4], &[3f32, 1.0, -2.0, 0.5]).unwrap();
    let (again, notes) = load_with_notes(folder.path(), &LoadOptions::default()).unwrap();
    assert_same(&again, &dataset);
    assert_eq!(notes.len(), 2, "{notes:?}");
    npy::write(&npy_path(&folder, "feat_indices"), Dtype::I32, &[4], &[3i32, 3, 1, 3]).unwrap();
    assert!(
        message(load(folder.path()))
            .contains("feat_indices.npy: array feat_indices: feature indices is 3 at position 1")
    );
    npy::write(&npy_path(&folder, "indices"), Dtype::I32, &[4], &[3i32, 0, -7, 1]).unwrap();
    assert!(message(load(folder.path())).contains("array indices: entry 2 is -7"));
}

/// Numbers of a file that would take memory beyond all that it holds.
#[test]
fn sizes_that_cannot_be_right_are_refused_at_once() {
    let folder = write_folder(&small(dense()));
    std::fs::remove_file(folder.path().join("meta.json")).unwrap();
    npy::write(&npy_path(&folder, "labels"), Dtype::I32, &[4], &[0i32, 8_388_610, 1, -1]).unwrap();
    let error = message(load(folder.path()));
    assert!(error.contains("entry 1 is 8388610, which would make 8388611 classes for 4 vertices"), "{error}");
    npy::write(&npy_path(&folder, "n_classes"), Dtype::I64, &[], &[8_388_611i64]).unwrap();
    assert_eq!(load(folder.path()).unwrap().n_classes, 8_388_611, "if the file says so");

    let folder = tempfile::tempdir().unwrap();
    npy::write(&npy_path(&folder, "edges"), Dtype::I32, &[1, 2], &[0i32, 1]).unwrap();
    npy::write(&npy_path(&folder, "num_nodes"), Dtype::I64, &[1], &[400_000_000i64]).unwrap();
    let error = message(load(folder.path()));
    assert!(error.contains("num_nodes: is 400000000, for 1 edges and no labels"), "{error}");
    npy::write(&npy_path(&folder, "num_nodes"), Dtype::I64, &[1], &[0i64]).unwrap();
    npy::write::<i32>(&npy_path(&folder, "edges"), Dtype::I32, &[0, 2], &[]).unwrap();
    for (name, shape) in [("train_masks", [1 << 60, 0]), ("train_mask", [0, 1 << 60])] {
        npy::write::<u8>(&npy_path(&folder, name), Dtype::U8, &shape, &[]).unwrap();
        let error = message(load(folder.path()));
        assert!(error.contains("has 1152921504606846976 splits"), "{error}");
        std::fs::remove_file(npy_path(&folder, name)).unwrap();
    }

    // A file with holes may be longer than any memory.
    let folder = write_folder(&small(dense()));
    let header = "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    std::fs::write(npy_path(&folder, "labels"), &bytes).unwrap();
    let file = std::fs::File::options().write(true).open(npy_path(&folder, "labels")).unwrap();
    if file.set_len(bytes.len() as u64 + 8_000_000_000_000).is_ok() {
        let error = load(folder.path()).unwrap_err();
        assert!(error.to_string().contains("labels"), "{error}");
    }
}

#[test]
fn meta_json_is_short_and_has_known_keys() {
    let folder = write_folder(&small(dense()));
    let meta = folder.path().join("meta.json");
    std::fs::write(&meta, r#"{"n_clases": 3, "name": "x", "dim": 2}"#).unwrap();
    let error = message(load(folder.path()));
    assert!(error.contains("has unknown keys: dim, n_clases; known are name, n_classes"), "{error}");
    std::fs::write(&meta, r#"{"num_classes": 5}"#).unwrap();
    assert_eq!(load(folder.path()).unwrap().n_classes, 5);
    std::fs::write(&meta, r#"{"num_classes": 5, "n_classes": 5}"#).unwrap();
    assert!(message(load(folder.path())).contains("duplicate field"));
    std::fs::write(&meta, " ".repeat((1 << 20) + 1)).unwrap();
    assert!(message(load(folder.path())).contains("meta.json: is longer than 1048576 bytes"));
}

/// Whoever opens a pipe waits for its writer.
#[cfg(target_os = "linux")]
#[test]
fn what_is_no_file_is_refused() {
    let folder = write_folder(&small(dense()));
    for name in ["labels.npy", "meta.json"] {
        let path = folder.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = message(load(folder.path()));
        assert!(error.contains(name) && error.ends_with("is a pipe or a device: expected a file"), "{error}");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(message(load(folder.path())).ends_with("is a folder: expected a file"));
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, whole).unwrap();
    }
}

#[test]
fn arrays_are_written_in_their_own_shape_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = npy_path(&folder, "array");
    for shape in [&[3][..], &[2, 2], &[], &[usize::MAX, 2]] {
        let error = message(npy::write(&path, Dtype::I32, shape, &[1i32, 2]));
        assert!(error.contains("shape") && error.contains("2 elements"), "{error}");
    }
    let error = message(npy::write(&path, Dtype::I64, &[2], &[1i32, 2]));
    assert!(error.contains("<i8") && error.contains("4 bytes"), "{error}");
    assert!(!path.exists());
}
