//! Labels, features and splits of files beside the edges, through whole imports.

use std::path::PathBuf;

use cohop::data::{Dataset, load};

use crate::testing::text;
use crate::{Format, Imported, Options, import};

/// Files to import, and what came of them.
struct Case {
    folder: tempfile::TempDir,
    options: Options,
}

impl Case {
    /// A list of edges.
    fn new(edges: &str) -> Self {
        let case = Case { folder: tempfile::tempdir().unwrap(), options: Options::default() };
        text(&case.at("edges.txt"), edges);
        case
    }

    /// The same with ids of any kind.
    fn mapped(edges: &str) -> Self {
        let mut case = Case::new(edges);
        case.options.read.text.map_ids = true;
        case
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn import(&self) -> cohop::Result<(Imported, Dataset)> {
        let options = Options { memory: 16 << 20, overwrite: true, ..self.options.clone() };
        let out = self.at("out");
        let imported = import(Format::Edges, &[self.at("edges.txt")], &out, &options, &mut |_, _| Ok(()))?;
        Ok((imported, load(out)?))
    }

    /// Asserts that the import is refused, with all of `texts` in the message.
    fn refused(&self, texts: &[&str]) {
        let Err(error) = self.import() else { panic!("no error: expected {texts:?}") };
        let error = error.to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}: expected {texts:?}");
    }

    /// The classes that a file of labels gives, and their number.
    fn classes(&mut self, labels: &str) -> (Vec<i32>, usize) {
        self.label(labels);
        let (_, set) = self.import().unwrap();
        (set.labels.to_vec(), set.n_classes)
    }

    fn label(&mut self, labels: &str) {
        text(&self.at("labels.csv"), labels);
        self.options.labels = Some(self.at("labels.csv"));
    }

    fn written(&self, name: &str) -> String {
        std::fs::read_to_string(self.at("out").join(name)).unwrap()
    }
}

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
    case.refused(&["line 4", "\"d\"", "of 3"]);
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
        ("0,art\n1,5\n", ["line 2", "\"5\"", "one kind"]),
        ("0,5\n1,art\n", ["line 2", "\"art\"", "one kind"]),
        ("id,class\n0,art\n1,5\n", ["line 3", "\"5\"", "one kind"]),
        ("0,1\n7,1\n", ["line 2", "\"7\"", "of 3"]),
        ("7,art\n0,art\n", ["line 1", "\"7\"", "of 3"]),
        ("0,1\n1\n", ["line 2", "has 1 values", "first line has 2"]),
        ("0,1.5\n", ["line 1", "1.5", "class"]),
        ("0,a\n0,b\n", ["labels", "0 and 1", "vertex 0"]),
    ] {
        case.label(labels);
        case.refused(&texts);
    }
}
