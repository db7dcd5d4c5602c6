//! Files of classes that are not as they should be, through whole imports.

use crate::testing::{Case, npy};

/// The notes of an import with a file of labels.
fn notes(case: &mut Case, labels: &str) -> Vec<String> {
    case.label(labels);
    case.import().unwrap().0.notes
}

#[test]
fn a_header_before_numbers_is_told_of() {
    let mut case = Case::new("0 1\n1 2\n");
    for (labels, names) in [("id,class\n0,5\n2,1\n", "\"id\", \"class\""), ("kind\n5\n0\n1\n", "\"kind\"")] {
        let notes = notes(&mut case, labels);
        let expected = format!("labels.csv is taken for names of columns: {names}");
        assert!(notes.iter().any(|note| note.ends_with(&expected)), "{notes:?}");
    }
    let notes = notes(&mut case, "0,5\n2,1\n");
    assert!(!notes.iter().any(|note| note.contains("first line")), "{notes:?}");
}

#[test]
fn files_without_labels_are_refused() {
    let mut case = Case::new("0 1\n1 2\n");
    for labels in ["", "\n\n", "# class of each vertex\n"] {
        case.label(labels);
        case.refused(&["labels.csv: has no labels: expected a class for each vertex"]);
    }
    for labels in ["label\n", "id,class\n"] {
        case.label(labels);
        case.refused(&["labels.csv: has no labels, but only names of columns"]);
    }
    // All are there, but none is a class.
    let notes = notes(&mut case, "-1\nnan\n\"\"\n");
    assert!(
        notes.contains(&"3 labels are empty, NaN or -1: these vertices have none".to_owned()),
        "{notes:?}"
    );
}

#[test]
fn too_many_labels_are_told_with_line_and_counts() {
    let mut case = Case::new("0 1\n1 2\n");
    case.label("0\n1\n2\n# and\n5\n1\n");
    let counts = "the file has 5 labels, there are 3 vertices: expected one each";
    case.refused(&["labels.csv: line 5: label \"5\" is the first too many", counts]);
    case.label("0\n1\n2\n\n\n");
    case.import().unwrap();
    case.label("subject\nzoo\nart\nzoo\n");
    case.refused(&[
        "line 4: label \"zoo\"",
        "4 labels, there are 3",
        "if the first line is the name of the column",
    ]);
}

#[test]
fn blank_lines_that_would_shift_classes_are_refused() {
    let mut case = Case::new("0 1\n1 2\n");
    for (labels, line) in [
        ("\n0\n1\n2\n", "line 1"),
        ("# a\n  \n0\n1\n2\n", "line 2"),
        ("0\n\n1\n2\n", "line 2"),
        ("0\n\n2\n", "line 2"),
    ] {
        case.label(labels);
        case.refused(&["labels.csv", line, "is blank", "expected a class, or \"\""]);
    }
    // A separator in quotes is part of a name.
    assert_eq!(case.classes("zoo\n\"a,b\"\nzoo\n"), (vec![1, 0, 1], 2));
    // Where each line has its id, nothing is shifted.
    assert_eq!(case.classes("\n0,1\n\n2,0\n"), (vec![1, -1, 0], 2));
}

#[test]
fn lines_with_other_numbers_of_values_are_refused() {
    let mut case = Case::new("0 1\n1 2\n");
    for (labels, line, counts) in [
        ("0,1\n1\n", "line 2", "has 1 values, the first line has 2"),
        ("0\n1,1\n2\n", "line 2", "has 2 values, the first line has 1"),
        ("id,class\n0,1\n1,1,5\n", "line 3", "has 3 values, the first line has 2"),
        ("class\n0;1\n", "line 2", "has 2 values, the first line has 1"),
        ("class\nart\n0,1\n", "line 3", "has 2 values, the first line has 1"),
        ("class\n0,1\n", "line 2", "has 2 values, the first line has 1"),
        ("0 1\n1 1 5\n", "line 2", "has 3 values, the first line has 2"),
        ("zoo\nfine art\nart\n", "line 2", "has 2 values, the first line has 1"),
    ] {
        case.label(labels);
        case.refused(&["labels.csv", line, counts]);
    }
}

#[test]
fn vertices_of_a_split_without_a_label_are_told_of() {
    let mut case = Case::new("0 1\n1 2\n2 3\n");
    let split = |case: &Case, train: &[i64], val: &[i64]| {
        [("a.npy", train), ("b.npy", val), ("c.npy", &[])]
            .map(|(name, ids)| case.array(name, &npy("<i8", false, &[ids.len()], ids)))
    };
    let files = split(&case, &[0, 1, 3], &[2]);
    case.options.split = Some(crate::SplitFrom::Files(files));
    let told =
        |notes: Vec<String>| notes.into_iter().filter(|note| note.contains("no label")).collect::<Vec<_>>();
    let expected = "2 training vertices have no label: nothing is learnt from them";
    assert_eq!(told(notes(&mut case, "0\n-1\n1\nnan\n")), [expected]);
    assert_eq!(told(notes(&mut case, "0,1\n2,0\n")), [expected]);
    let of_val = "1 validation vertices have no label: they do not count";
    assert_eq!(told(notes(&mut case, "0,1\n1,0\n3,0\n")), [of_val]);
    assert!(told(notes(&mut case, "0\n1\n1\n0\n")).is_empty());
    case.options.labels = Some(case.array("y.npy", &npy("<f4", false, &[4], &[0f32, f32::NAN, 1., -1.])));
    assert_eq!(told(case.import().unwrap().0.notes), [expected]);
    // Masks of two splits: of the first.
    let masks = |rows: [[u8; 2]; 4]| npy("|b1", false, &[4, 2], &rows.concat());
    case.array("a.npy", &masks([[1, 1], [1, 0], [0, 0], [0, 1]]));
    case.array("b.npy", &masks([[0, 0], [0, 0], [1, 1], [0, 0]]));
    let of_first = "1 training vertices of the first split have no label: nothing is learnt from them";
    assert_eq!(told(case.import().unwrap().0.notes), [of_first]);
}
