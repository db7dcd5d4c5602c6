//! Labels, features and splits of files beside the edges, through whole imports.

use cohop::data::{Dataset, FeatureDtype};

use crate::SplitFrom;
use crate::testing::{Case, npy, text};

#[test]
fn classes_may_have_names_and_ids_may_have_commas() {
    let mut case = Case::mapped("\"Hill, Ann\",bob\nbob,eve\neve,\"\"\"Q\"\"\"\n");
    let lines = "bob,\"physics, applied\"\n\"Hill, Ann\",art\n\"\"\"Q\"\"\",art\neve,\n";
    // In the order of ids.txt: Ann, Bob, Eve, "Q".
    let expected = (vec![0, 1, -1, 0], 2);
    assert_eq!(case.classes(lines), expected);
    assert_eq!(case.written("ids.txt"), "Hill, Ann\nbob\neve\n\"Q\"\n");
    assert_eq!(case.written("classes.txt"), "art\nphysics, applied\n");
    let (imported, _) = case.import().unwrap();
    assert!(imported.notes.iter().any(|note| note.contains("classes.txt")), "{:?}", imported.notes);
    assert!(!imported.notes.iter().any(|note| note.contains("first line")));
    // The same with a header.
    assert_eq!(case.classes(&format!("who,what\n{lines}")), expected);
    let (imported, _) = case.import().unwrap();
    assert!(imported.notes.iter().any(|note| note.contains("first line") && note.contains("\"what\"")));
    // By tabs, and by spaces with quotes.
    let by_tabs = "bob\t\"physics, applied\"\nHill, Ann\tart\n\"\"\"Q\"\"\"\tart\neve\t\n";
    assert_eq!(case.classes(by_tabs), expected);
    assert_eq!(case.classes("bob  \"b c\"\n\"Hill, Ann\" a\n").0, [0, 1, -1, -1]);
    assert_eq!(case.classes("bob,2\n\"Hill, Ann\",0\n").0, [0, 2, -1, -1], "numbers stay numbers");
    assert!(!case.at("out/classes.txt").exists());
}

#[test]
fn classes_are_one_a_line_or_chosen_of_several_columns() {
    let mut case = Case::new("0 1\n1 2\n");
    assert_eq!(case.classes("zoo\nart\nzoo\n"), (vec![1, 0, 1], 2));
    assert_eq!(case.classes("label\nzoo\nart\nzoo\n"), (vec![1, 0, 1], 2));
    assert_eq!(case.classes("kind\n5\n\"\"\n0\n"), (vec![5, -1, 0], 6));
    assert_eq!(case.classes("2\nnan\n-1\n"), (vec![2, -1, -1], 3));
    case.label("zoo\nart\n");
    case.refused(&["labels.csv", "2 labels", "3 vertices"]);
    case.label("a\nb\nc\nd\n");
    case.refused(&["line 4", "\"d\"", "4 labels, there are 3"]);
    case.options.read.label_column = Some(1);
    assert_eq!(case.classes("id,year,topic\n2,1999,b\n0,2001,a\n"), (vec![0, -1, 1], 2));
    case.label("2,1999\n");
    case.refused(&["--label-column", "1", "below 1"]);
    case.options.read.label_column = None;
    case.label("2,1999,b\n");
    case.refused(&["line 1", "--label-column"]);
}

#[test]
fn labels_that_cannot_be_are_refused_with_the_line() {
    let mut case = Case::new("0 1\n1 2\n");
    for (labels, texts) in [
        ("0,art\n1,5\n", ["line 2: label \"5\" is a number", "line 1, \"art\", is a name", "all names"]),
        ("0,5\n1,art\n", ["line 2: label \"art\" is a name", "before it are numbers", "all names"]),
        (
            "id,class\n0,art\n1,5\n",
            ["line 3: label \"5\" is a number", "line 2, \"art\", is a name", "all names"],
        ),
        ("0,1\n7,1\n", ["line 2", "\"7\"", "of 3"]),
        ("7,art\n0,art\n", ["line 1", "\"7\"", "of 3"]),
        ("0,1\n1\n", ["line 2", "has 1 values", "first line has 2"]),
        ("0,1.5\n", ["line 1", "1.5", "class"]),
        ("1,a\n0,a\n0,b\n", ["labels.csv: line 3", "\"0\" has the class \"b\"", "\"a\" in line 2"]),
    ] {
        case.label(labels);
        case.refused(&texts);
    }
}

#[test]
fn parts_of_a_split_may_be_masks() {
    let mut case = Case::new("0 1\n2 3\n3 4\n");
    let mask = |descr: &str, values: [u8; 5]| npy(descr, false, &[5], &values);
    let files = [
        case.array("train_mask.npy", &mask("|b1", [1, 0, 0, 1, 0])),
        case.array("val_mask.npy", &mask("|u1", [0, 1, 0, 0, 0])),
        case.array("test_mask.npy", &npy("<i8", false, &[5], &[0i64, 0, 1, 0, 1])),
    ];
    let expected = [vec![0, 3], vec![1], vec![2, 4]];
    assert_eq!(case.split(files.clone()), expected);
    // Ids, also where they are few, and none; and as many ids as vertices.
    case.array("train_mask.npy", &npy("|u1", false, &[2], &[1u8, 0]));
    case.array("val_mask.npy", &npy::<u8>("|u1", false, &[0], &[]));
    case.array("test_mask.npy", &npy("|u1", false, &[3], &[4u8, 2, 3]));
    let [train, val, test] = case.split(files.clone()).map(|mut part| {
        part.sort_unstable();
        part
    });
    assert_eq!([train, val, test], [vec![0, 1], vec![], vec![2, 3, 4]]);
    case.array("test_mask.npy", &npy("|u1", false, &[4], &[1u8, 0, 0, 1]));
    case.refused(&["test_mask.npy", "4 values", "expected 5"]);
    case.array("test_mask.npy", &npy("|b1", false, &[1], &[1u8]));
    case.refused(&["test_mask.npy", "1 values", "expected 5"]);
}

#[test]
fn a_vertex_in_two_parts_is_told_with_the_files_that_were_given() {
    let mut case = Case::new("0 1\n2 3\n");
    let parts = [("train.txt", "0\n1\n"), ("val.txt", "1\n"), ("test.txt", "3\n")];
    let files = parts.map(|(name, lines)| {
        text(&case.at(name), lines);
        case.at(name)
    });
    let [train, val, _] = files.each_ref().map(|path| path.display().to_string());
    case.options.split = Some(SplitFrom::Files(files));
    let error = case.import().unwrap_err().to_string();
    let expected = format!(
        "{val}: line 1: vertex 1 is already in line 2 of {train}: expected every vertex at most once"
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_vertex_twice_in_a_split_is_told_with_its_places() {
    let mut case = Case::new("0 1\n2 3\n");
    for (name, lines) in [("train.txt", "# ids\n0\n\n3\n0\n"), ("val.txt", "1\n"), ("test.txt", "")] {
        text(&case.at(name), lines);
    }
    let files = ["train.txt", "val.txt", "test.txt"].map(|name| case.at(name));
    case.options.split = Some(SplitFrom::Files(files.clone()));
    // Empty lines and comments count as lines.
    case.options.read.text.map_ids = true;
    case.refused(&["train.txt: line 5: id \"0\" is already in line 2: expected every vertex at most once"]);
    case.options.read.text.map_ids = false;
    text(&files[0], "0\n\n3\n0\n");
    case.refused(&["train.txt: line 4: vertex 0 is already in line 1: expected every vertex at most once"]);
    // Arrays of ids and masks.
    let mut files = files;
    files[0] = case.array("train.npy", &npy("<i8", false, &[3], &[2i64, 0, 2]));
    case.options.split = Some(SplitFrom::Files(files.clone()));
    case.refused(&["train.npy: row 2: vertex 2 is already in row 0: expected"]);
    case.array("train.npy", &npy("|b1", false, &[4], &[1u8, 1, 0, 0]));
    case.refused(&["val.txt: line 1: vertex 1 is already in row 1 of ", "train.npy: expected"]);
    case.options.read.text.map_ids = true;
    case.refused(&["val.txt: line 1: id \"1\" is already in row 1 of ", "train.npy: expected"]);
}

#[test]
fn ids_that_count_from_one_are_told_of() {
    let told = |case: &Case| {
        let (imported, set) = case.import().unwrap();
        (set.n_vertices(), imported.notes.iter().any(|note| note.contains("count from 1")))
    };
    // As KONECT counts.
    assert_eq!(told(&Case::new("% sym\n1 2\n3 2\n")), (4, true));
    assert_eq!(told(&Case::mapped("% sym\n1 2\n3 2\n")), (3, false));
    assert_eq!(told(&Case::new("2 1\n1 0\n")), (3, false));
    let mut case = Case::new("1 2\n3 2\n");
    case.label("0\n1\n0\n");
    case.refused(&["3 labels", "4 vertices", "if ids count from 1, --ids map"]);
    case.options.labels = Some(case.array("y.npy", &npy("<i8", false, &[3], &[0i64, 1, 0])));
    case.refused(&["3 labels", "4 vertices", "if ids count from 1, --ids map"]);
}

#[test]
fn what_the_first_line_is_taken_for_is_told() {
    let told = |case: &Case| {
        let notes = case.import().unwrap().0.notes;
        notes.into_iter().find(|note| note.contains("first line")).unwrap_or_default()
    };
    let note = told(&Case::new("from,to\n0,1\n"));
    assert!(note.contains("taken for names of columns: \"from\", \"to\" (--header false"), "{note}");
    let note = told(&Case::mapped("source,target\n0,1\n"));
    assert!(note.contains("taken for names of columns: \"source\""), "{note}");
    let note = told(&Case::mapped("paper,cites\n7,9\n"));
    assert!(note.contains("taken for an edge: \"paper\", \"cites\" (--header true"), "{note}");
    for lines in ["ann,bob\nbob,eve\n", "7,9\n9,8\n", "ann,bob\n"] {
        assert_eq!(told(&Case::mapped(lines)), "");
    }
    let mut case = Case::mapped("paper,cites\n7,9\n");
    case.options.read.text.header = Some(true);
    assert_eq!(told(&case), "");
}

#[test]
fn rows_of_features_without_numbers_as_ids_are_told_what_helps() {
    let mut case = Case::new("0 1\n");
    case.options.features_by_id = true;
    for (lines, line) in [("a,1,2\n1,3,4\n", "line 1"), ("id,x,y\n0,1,2\nb,3,4\n", "line 3")] {
        text(&case.at("x.csv"), lines);
        case.options.features = Some(case.at("x.csv"));
        case.refused(&["x.csv", line, "expected a number, or --ids map"]);
    }
}

#[test]
fn labels_in_the_order_of_ids_are_told_of() {
    let told = |mut case: Case, labels: &str| {
        case.label(labels);
        let notes = case.import().unwrap().0.notes;
        notes.iter().any(|note| note.contains("labels.csv are taken in the order of ids.txt"))
    };
    assert!(told(Case::mapped("a b\nb c\n"), "0\n1\n0\n"));
    assert!(!told(Case::mapped("a b\nb c\n"), "a 0\nb 1\nc 0\n"));
    assert!(!told(Case::new("0 1\n1 2\n"), "0\n1\n0\n"));
}

#[test]
fn masks_of_several_splits_are_kept() {
    let mut case = Case::new("0 1\n2 3\n3 4\n");
    let of_train = [1u8, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let by_splits = [1u8, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    // [vertices, splits], then the same in Fortran order; the test vertices are the same in all splits.
    let files = [
        case.array("train.npy", &npy("|b1", false, &[5, 3], &of_train)),
        case.array("val.npy", &npy("<i8", false, &[5, 3], &[0i64, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])),
        case.array("test.npy", &npy("<i8", false, &[1], &[3i64])),
    ];
    case.options.split = Some(SplitFrom::Files(files));
    let expected = [[vec![0, 2], vec![1], vec![3]], [vec![1], vec![2], vec![3]], [vec![4], vec![0], vec![3]]];
    for fortran in [false, true] {
        let (imported, mut set) = case.import().unwrap();
        assert!(imported.notes.iter().any(|note| note.starts_with("there are 3 splits")), "{imported:?}");
        assert_eq!(set.splits.len(), 3);
        let parts = |set: &Dataset| [&set.train_idx, &set.val_idx, &set.test_idx].map(Vec::clone);
        assert_eq!(parts(&set), expected[0]);
        for (k, expected) in expected.iter().enumerate() {
            set.select_split(k).unwrap();
            assert_eq!(&parts(&set), expected, "split {k}, in Fortran order before: {fortran}");
        }
        case.array("train.npy", &npy("|u1", true, &[5, 3], &by_splits));
    }
    // Where ids are mapped, rows are those of integer ids: vertices 0 to 3 are 4, 1, 3, 0.
    let mut mapped = Case::mapped("4 1\n3 0\n");
    let files = [
        mapped.array("train.npy", &npy("|b1", false, &[5, 3], &of_train)),
        mapped.array("val.npy", &npy("|b1", false, &[2, 3], &[0u8, 0, 0, 0, 0, 1])),
        mapped.array("test.npy", &npy("|b1", false, &[4], &[0u8, 0, 0, 1])),
    ];
    mapped.options.split = Some(SplitFrom::Files(files));
    mapped.refused(&["train.npy", "row 2", "no edge has the id 2"]);
    let without: Vec<u8> =
        of_train.iter().enumerate().map(|(i, &v)| if i / 3 == 2 { 0 } else { v }).collect();
    mapped.array("train.npy", &npy("|b1", false, &[5, 3], &without));
    let set = mapped.import().unwrap().1;
    let trained: Vec<&[u32]> = set.splits.iter().map(|split| &split.train[..]).collect();
    assert_eq!(trained, [&[3][..], &[1], &[0]]);
    assert_eq!((&set.splits[2].val[..], &set.splits[2].test[..]), (&[1][..], &[2][..]));

    // Vertex 3 is in the last split's validation and test parts; then a mask of one split, the same in all.
    let overlapping = [0i64, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
    case.array("val.npy", &npy("<i8", false, &[5, 3], &overlapping));
    let named = ["test.npy: test_idx is 3 at", "already in val_idx[1] of split 2", "val_idx is of "];
    case.refused(&[&named[..], &["val.npy of shape [5, 3]", "test.npy of shape [1]"]].concat());
    case.array("test.npy", &npy("|b1", false, &[5], &[0u8, 0, 0, 1, 0]));
    case.refused(&[&named[..], &["val.npy of shape [5, 3]", "test.npy of shape [5]"]].concat());
    case.array("val.npy", &npy("|b1", false, &[5, 2], &[0u8; 10]));
    case.refused(&["val.npy", "masks of 2 splits", "train.npy of 3"]);
    case.array("val.npy", &npy("|b1", false, &[4, 3], &[0u8; 12]));
    case.refused(&["val.npy", "[4, 3]", "expected [5, splits]"]);
    case.array("val.npy", &npy("<i8", false, &[5, 3], &[7i64; 15]));
    case.refused(&["val.npy", "row 0, column 0: 7", "0 or 1"]);
    case.array("val.npy", &npy("|b1", false, &[0, 1 << 17], &[0u8; 0]));
    case.refused(&["val.npy", "131072 splits"]);
    // A mask of one column is one.
    for (name, value) in [("train.npy", [1u8, 0, 0, 1, 0]), ("val.npy", [0, 1, 0, 0, 0])] {
        case.array(name, &npy("|u1", false, &[5, 1], &value));
    }
    case.array("test.npy", &npy("<i8", false, &[1, 1], &[2i64]));
    let set = case.import().unwrap().1;
    assert_eq!((&set.train_idx[..], &set.val_idx[..], &set.test_idx[..]), (&[0, 3][..], &[1][..], &[2][..]));
}

#[test]
fn arrays_mean_integer_ids_where_ids_are_mapped() {
    // Vertices 0 to 3 are 30, 10, 7, 2.
    let mut case = Case::mapped("30 10\n7 2\n");
    let mut classes = vec![9i64; 31];
    [(30, 3), (10, 1), (7, -1), (2, 0)].into_iter().for_each(|(id, class)| classes[id] = class);
    case.options.labels = Some(case.array("y.npy", &npy("<i8", false, &[31], &classes)));
    let (imported, set) = case.import().unwrap();
    assert_eq!((&set.labels[..], set.n_classes), (&[3, 1, -1, 0][..], 4));
    assert!(imported.notes.iter().any(|note| note.starts_with("27 rows of")), "{:?}", imported.notes);
    let mut mask = [0u8; 31];
    mask[7] = 1;
    let files = [
        case.array("train.npy", &npy("<i8", false, &[2], &[10i64, 30])),
        case.array("val.npy", &npy("|b1", false, &[31], &mask)),
        case.array("test.npy", &npy("<u8", false, &[1], &[2u64])),
    ];
    let mut parts = case.split(files);
    parts[0].sort_unstable();
    assert_eq!(parts, [vec![0, 1], vec![2], vec![3]]);
    let features: Vec<f32> = (0..62).map(|i| i as f32).collect();
    let x = case.array("x.npy", &npy("<f4", false, &[31, 2], &features));
    case.options.features_by_id = true;
    assert_eq!(case.features(x), [[60., 61.], [20., 21.], [14., 15.], [4., 5.]]);
    case.array("x.npy", &npy("<f4", false, &[30, 2], &features[..60]));
    case.refused(&["x.npy", "no row for id \"30\""]);
    case.options.features = None;
    case.options.features_by_id = false;
    case.array("test.npy", &npy("<i8", false, &[1], &[3i64]));
    case.refused(&["test.npy", "id 3", "no edge"]);
    case.array("y.npy", &npy("<i8", false, &[30], &classes[..30]));
    case.refused(&["y.npy", "30 rows", "\"30\""]);
    let mut names = Case::mapped("ann 1\n");
    names.options.labels = Some(names.array("y.npy", &npy("<i8", false, &[2], &[0i64, 1])));
    names.refused(&["y.npy", "\"ann\"", "text"]);
}

#[test]
fn rows_of_features_are_found_by_id_in_any_order() {
    let mut case = Case::mapped("\"Hill, Ann\",bob\nbob,7\n");
    case.options.features_by_id = true;
    let x = case.at("x.csv");
    // As pandas.DataFrame.to_csv writes them.
    let lines = ",0,1\n7,0.5,\nbob,-1,2\n\"Hill, Ann\",1e3,4\n";
    text(&x, lines);
    case.options.read.feature_dtype = Some(FeatureDtype::Bf16);
    case.options.features = Some(x.clone());
    assert_eq!(case.import().unwrap().1.features.dtype(), Some(FeatureDtype::Bf16));
    case.options.read.feature_dtype = None;
    let rows = case.features(x.clone());
    assert_eq!(rows[..2], [[1000., 4.], [-1., 2.]]);
    assert!(rows[2][0] == 0.5 && rows[2][1].is_nan());
    for (lines, texts) in [
        ("bob,1,2\n7,1,2\n", ["no row for", "\"Hill, Ann\""]),
        (
            "bob,1\n7,2\nbob,3\n\"Hill, Ann\",4\n",
            ["line 3: has a second row for id \"bob\", after that of line 1", "one each"],
        ),
        ("bob,1\neve,2\n", ["line 2", "\"eve\""]),
        ("eve,2\nbob,1\n", ["line 1", "\"eve\""]),
        ("bob,1\n7,x\n", ["line 2", "\"x\""]),
        ("bob,1\n7,1,2\n", ["line 2", "3 values, the first line has 2"]),
        ("bob\n", ["line 1", "an id and features"]),
        ("", ["no row for", "\"Hill, Ann\""]),
    ] {
        text(&x, lines);
        case.refused(&texts);
        case.refused(&["x.csv"]);
    }
    // Numbers as ids.
    let mut case = Case::new("0 2\n1 2\n");
    case.options.features_by_id = true;
    let x = case.at("x.tsv");
    text(&x, "# a comment\nid\ta\n2\t5\n0\t3\n1\t4\n");
    assert_eq!(case.features(x.clone()), [[3.], [4.], [5.]]);
    text(&x, "0 1\n2 1\n");
    case.refused(&["x.tsv", "no row for vertex 1"]);
    text(&x, "# a comment\nid\ta\n2\t5\n0\t3\n\n1\t4\n0\t3\n");
    case.refused(&["x.tsv: line 7: has a second row for vertex 0, after that of line 4: expected one each"]);
    case.options.features = None;
    case.refused(&["--features-by-id", "--features"]);
}

#[test]
fn values_that_are_no_numbers_are_told_with_the_first_place() {
    let mut case = Case::new("0 1\n1 2\n");
    let told = |case: &Case| {
        let notes = case.import().unwrap().0.notes;
        notes.into_iter().filter(|note| note.contains("NaN or infinite")).collect::<Vec<_>>()
    };
    let x = case.at("x.csv");
    for (by_id, lines, expected) in [
        (false, "1,2\n\n3,nan\n,inf\n", "3 values of features are NaN or infinite, the first in line 3 of "),
        (true, "# a\n2,1\n0,nan\n1,\n", "2 values of features are NaN or infinite, the first in line 3 of "),
    ] {
        text(&x, lines);
        (case.options.features, case.options.features_by_id) = (Some(x.clone()), by_id);
        assert_eq!(told(&case), [format!("{expected}{}", x.display())]);
    }
    let x = case.array("x.npy", &npy("<f4", false, &[3, 1], &[0f32, f32::NAN, 1.]));
    for by_id in [false, true] {
        (case.options.features, case.options.features_by_id) = (Some(x.clone()), by_id);
        let expected = "1 values of features are NaN or infinite, the first in row 1 of ";
        assert_eq!(told(&case), [format!("{expected}{}", x.display())]);
    }
}
