//! Whole imports against naive ones.

use std::collections::{BTreeMap, BTreeSet};

use cohop::data::{Dataset, load};
use proptest::prelude::*;

use super::*;
use crate::columns::Column;
use crate::edges::EdgeText;
use crate::testing::{file, npy, text};

fn quiet() -> impl FnMut(&str, f64) -> Result<()> {
    |_: &str, _: f64| Ok(())
}

fn options() -> Options {
    Options { memory: LEAST_MEMORY, ..Options::default() }
}

fn edges_of(dataset: &Dataset) -> Vec<(u32, u32, u16, f32)> {
    let graph = &dataset.graph;
    let mut edges = Vec::new();
    for destination in 0..graph.n_vertices() as u32 {
        for at in graph.indptr()[destination as usize]..graph.indptr()[destination as usize + 1] {
            let at = at as usize;
            let kind = graph.edge_type().map_or(0, |kinds| kinds[at]);
            let weight = graph.edge_weight().map_or(1.0, |weights| weights[at]);
            edges.push((graph.indices()[at], destination, kind, weight));
        }
    }
    edges
}

/// What the options make of edges, by sets and maps.
fn naive(
    given: &[(u32, u32, u16, f32)],
    n: u32,
    n_relations: u16,
    options: &Options,
) -> Vec<(u32, u32, u16, f32)> {
    let turned = given.iter().map(|&(s, d, k, w)| if options.reverse { (d, s, k, w) } else { (s, d, k, w) });
    let kept: Vec<_> =
        turned.filter(|&(s, d, ..)| s != d || options.self_loops != SelfLoops::Remove).collect();
    let there: BTreeSet<_> = kept.iter().map(|&(s, d, k, _)| (s, d, k)).collect();
    let mut all = kept.clone();
    if options.undirected {
        let reverses = kept.iter().map(|&(s, d, k, w)| (d, s, k, w));
        all.extend(reverses.filter(|&(s, d, k, _)| !there.contains(&(s, d, k))));
    }
    if options.deduplicate {
        let mut sums = BTreeMap::new();
        all.iter().for_each(|&(s, d, k, w)| *sums.entry((s, d, k)).or_insert(0.0) += w);
        all = sums.into_iter().map(|((s, d, k), w)| (s, d, k, w)).collect();
    }
    if options.self_loops == SelfLoops::Add {
        let kind = if n_relations > 1 { n_relations } else { 0 };
        let have: BTreeSet<u32> = all.iter().filter(|(s, d, ..)| s == d).map(|&(s, ..)| s).collect();
        all.extend((0..n).filter(|v| !have.contains(v)).map(|v| (v, v, kind, 1.0)));
    }
    // Weights are small whole numbers: their order says nothing.
    all.sort_by(|a, b| (a.1, a.0, a.2).cmp(&(b.1, b.0, b.2)).then(a.3.total_cmp(&b.3)));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn edges_are_those_of_a_naive_import(
        edges in prop::collection::vec((0u32..7, 0u32..7, 0u16..3, 0u8..4), 1..60),
        reverse: bool,
        undirected: bool,
        deduplicate: bool,
        self_loops in prop::sample::select(vec![SelfLoops::Keep, SelfLoops::Add, SelfLoops::Remove]),
        has_kinds: bool,
        has_weights: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("edges.tsv");
        let lines: String = edges.iter().map(|(s, d, k, w)| format!("{s}\t{d}\t{k}\t{w}\n")).collect();
        text(&input, &lines);
        let kind = if has_kinds { Column::Type } else { Column::Skip };
        let columns = vec![Column::Source, Column::Destination, kind, Column::Weight];
        let read = ReadOptions {
            text: EdgeText { columns, ..EdgeText::default() },
            n_vertices: Some(8),
            without_weights: !has_weights,
            ..ReadOptions::default()
        };
        let options = Options { read, reverse, undirected, deduplicate, self_loops, ..options() };
        let out = folder.path().join("out");
        let imported = import(Format::Edges, &[input], &out, &options, &mut quiet()).unwrap();
        let given: Vec<_> = edges
            .iter()
            .map(|&(s, d, k, w)| (s, d, if has_kinds { k } else { 0 }, if has_weights { f32::from(w) } else { 1.0 }))
            .collect();
        let n_relations = given.iter().map(|edge| edge.2 + 1).max().unwrap();
        let mut expected = naive(&given, 8, n_relations, &options);
        if !has_weights {
            expected.iter_mut().for_each(|edge| edge.3 = 1.0);
        }
        let mut found = edges_of(&load(&out).unwrap());
        prop_assert_eq!(imported.edges, found.len() as u64);
        prop_assert_eq!(imported.edges_read, edges.len() as u64);
        found.sort_by(|a, b| (a.1, a.0, a.2).cmp(&(b.1, b.0, b.2)).then(a.3.total_cmp(&b.3)));
        prop_assert_eq!(found, expected);
        // Nothing is left of the work.
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

/// More than a hundred megabytes of records by 16 MiB, with times, which follow their edges.
#[test]
fn what_edges_have_follows_them_through_files() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.csv");
    let (n, n_edges) = (1000u64, 2_500_000u64);
    // Each pair once: the time says which edge it is.
    let pair = |i: u64| (i * 7919 % n, i / n % n);
    let mut lines = String::from("from,to,when\n");
    for i in 0..n_edges {
        let (source, destination) = pair(i);
        lines.push_str(&format!("{source},{destination},{i}\n"));
    }
    text(&input, &lines);
    let columns = vec![Column::Source, Column::Destination, Column::Time];
    let read = ReadOptions { text: EdgeText { columns, ..EdgeText::default() }, ..ReadOptions::default() };
    let out = folder.path().join("out");
    import(Format::Edges, &[input], &out, &Options { read, ..options() }, &mut quiet()).unwrap();
    let dataset = load(&out).unwrap();
    let times = NpyArray::open(&out.join("edge_time.npy"), "edge_time").unwrap().floats().unwrap();
    assert_eq!((dataset.graph.n_edges(), times.len() as u64), (n_edges, n_edges));
    for (time, (source, destination, ..)) in times.iter().zip(edges_of(&dataset)) {
        assert_eq!(pair(*time as u64), (u64::from(source), u64::from(destination)));
    }
}

/// As ogbn-proteins: edges get their reverses, and both get the features.
#[test]
fn edge_features_of_an_ogb_folder_follow_their_edges() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("proteins");
    for (name, contents) in [
        ("raw/edge", "2,1\n0,2\n1,0\n"),
        ("raw/edge-feat", "21,0.5\n2,0.25\n10,0.125\n"),
        ("raw/num-node-list", "3\n"),
        ("raw/num-edge-list", "3\n"),
        ("raw/node-label", "0,1\n1,1\n1,0\n"),
        ("split/species/train", "2\n"),
        ("split/species/valid", "0\n"),
        ("split/species/test", "1\n"),
    ] {
        text(&input.join(format!("{name}.csv.gz")), contents);
    }
    let read = ReadOptions { label_column: Some(0), ..ReadOptions::default() };
    let out = folder.path().join("out");
    import(Format::Ogb, &[input], &out, &Options { read, ..options() }, &mut quiet()).unwrap();
    let set = load(&out).unwrap();
    let edges: Vec<_> = edges_of(&set).iter().map(|edge| (edge.0, edge.1)).collect();
    assert_eq!(edges, [(1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2)]);
    let features = NpyArray::open(&out.join("edge_feat.npy"), "edge_feat").unwrap();
    assert_eq!(features.matrix().unwrap(), [6, 2]);
    let expected = [10., 0.125, 2., 0.25, 10., 0.125, 21., 0.5, 2., 0.25, 21., 0.5];
    assert_eq!(features.floats().unwrap()[..], expected);
    assert_eq!((&set.labels[..], set.n_classes, set.features.is_none()), (&[0, 1, 1][..], 2, true));
    assert_eq!((&set.train_idx[..], &set.val_idx[..], &set.test_idx[..]), (&[2][..], &[0][..], &[1][..]));
    assert!(out.join("multi_labels.npy").exists() && !out.join("unordered_edge_feat.npy").exists());
}

#[test]
fn types_of_edges_may_have_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |files: &[&str], map_ids, columns: &str| {
        let paths: Vec<_> = (0..files.len()).map(|i| at(&format!("e{i}.csv"))).collect();
        paths.iter().zip(files).for_each(|(path, lines)| text(path, lines));
        let columns = columns.split(',').map(|column| column.parse().unwrap()).collect();
        let read =
            ReadOptions { text: EdgeText { map_ids, columns, header: None }, ..ReadOptions::default() };
        let options = Options { read, overwrite: true, ..options() };
        let imported = import(Format::Edges, &paths, &at("out"), &options, &mut quiet())?;
        let edges: Vec<_> = edges_of(&load(at("out"))?).iter().map(|edge| (edge.0, edge.1, edge.2)).collect();
        let names = std::fs::read_to_string(at("out/relations.txt")).ok();
        assert_eq!(imported.notes.iter().any(|note| note.contains("relations.txt")), names.is_some());
        Ok::<_, Error>((edges, names.unwrap_or_default()))
    };
    let columns = "source,type,destination";
    // Numbers in the order of names, over all files, of which each has its header.
    let files = ["s,rel,d\n0,likes,1\n1,\"is, or was\",2\n", "s,rel,d\n2,hates,0\n0,likes,2\n"];
    let expected =
        (vec![(2, 0, 0), (0, 1, 2), (0, 2, 2), (1, 2, 1)], "hates\nis, or was\nlikes\n".to_owned());
    assert_eq!(run(&files, false, columns).unwrap(), expected);
    let files = files.map(|lines| lines.replace("s,rel,d", "source,rel,target"));
    assert_eq!(run(&[&files[0], &files[1]], true, columns).unwrap(), expected);
    // Numbers stay numbers, and the first line is a header by them.
    let numbers = "who,rel,whom\nann,5,bob\nbob,0,ann\n";
    assert_eq!(run(&[numbers], true, columns).unwrap(), (vec![(1, 0, 0), (0, 1, 5)], String::new()));
    assert_eq!(run(&["0,likes,1\n"], false, columns).unwrap(), (vec![(0, 1, 0)], "likes\n".to_owned()));
    for (lines, texts) in [
        ("0,likes,1\n1,hates,0\n2,5,1\n", ["line 3", "\"5\"", "names"]),
        ("0,5,1\n1,hates,0\n", ["line 2", "\"hates\"", "integer"]),
        ("0,hates,1\n1,5,0\n", ["line 1", "\"hates\"", "integer"]),
        ("0,likes,1\n1,,0\n", ["line 2", "no type", "column"]),
    ] {
        let error = run(&[lines], false, columns).unwrap_err().to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}: expected {texts:?}");
    }
}

#[test]
fn a_header_that_contradicts_the_columns_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |lines: [&str; 2], columns: &str, map_ids, header| {
        text(&at("a.csv"), lines[0]);
        text(&at("b.csv"), lines[1]);
        let columns = columns.split(',').map(|column| column.parse().unwrap()).collect();
        let read = ReadOptions { text: EdgeText { map_ids, columns, header }, ..ReadOptions::default() };
        let options = Options { read, overwrite: true, ..options() };
        import(Format::Edges, &[at("a.csv"), at("b.csv")], &at("out"), &options, &mut quiet())?;
        Ok::<_, Error>(edges_of(&load(at("out"))?).iter().map(|e| (e.0, e.1)).collect::<Vec<_>>())
    };
    let both = "source,destination";
    for map_ids in [false, true] {
        // Also in the second file, and behind comments.
        let lines = ["src,dst\n0,1\n", "# comment\ntarget,source\n2,1\n"];
        let error = run(lines, both, map_ids, None).unwrap_err().to_string();
        let expected =
            "b.csv: line 2: names columns \"target\", \"source\", but \"target\" is taken for the source";
        assert!(error.contains(expected) && error.contains("--columns destination,source"), "{error}");
        assert_eq!(error.contains("--header false"), map_ids, "{error}");
        let lines = ["target,source\n1,0\n", "dst,src\n2,1\n"];
        assert!(run(lines, both, map_ids, Some(true)).is_err());
        assert_eq!(run(lines, "destination,source", map_ids, None).unwrap().len(), 2);
    }
    let expected = vec![(0, 1), (1, 2)];
    assert_eq!(run(["target,source\n1,0\n", "2,1\n"], "destination,source", false, None).unwrap(), expected);
    // Types by name are read before edges.
    let error = run(["u,weight,v\n0,a,1\n", "1,b,2\n"], "source,type,destination", false, None).unwrap_err();
    assert!(error.to_string().contains("a.csv: line 1: names columns \"u\", \"weight\", \"v\""), "{error}");
    // Numbers are no names, and an edge is not lost for want of an id.
    let error = run(["1.0,2.0\n3,4\n", "1,2\n"], both, false, None).unwrap_err();
    assert!(error.to_string().contains("line 1") && error.to_string().contains("1.0"), "{error}");
    // Words that are the ids of an edge.
    assert_eq!(run(["to,from\nfrom,a\n", ""], both, true, Some(false)).unwrap(), expected);
}

#[test]
fn ids_labels_features_and_splits_come_from_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    text(&at("edges.csv.gz"), "# who,whom\nsource,target\nann,bob\n\"ann\",\"c, d\"\nbob,eve\n");
    text(&at("labels.csv"), "id,class\nbob,1\nann,0\neve,-1\n");
    text(&at("train.txt"), "bob\n");
    text(&at("val.txt"), "");
    text(&at("test.txt"), "ann\n");
    file(&at("x.npy"), &npy("<f8", false, &[4, 2], &[0f64, 1., 2., 3., 4., 5., 6., 7.]));
    let read = ReadOptions {
        text: EdgeText { map_ids: true, ..EdgeText::default() },
        feature_dtype: Some(FeatureDtype::Bf16),
        ..ReadOptions::default()
    };
    let files = ["train.txt", "val.txt", "test.txt"].map(at);
    let options = Options {
        read,
        labels: Some(at("labels.csv")),
        features: Some(at("x.npy")),
        split: Some(SplitFrom::Files(files)),
        ..options()
    };
    let imported = import(Format::Edges, &[at("edges.csv.gz")], &at("out"), &options, &mut quiet()).unwrap();
    assert_eq!((imported.vertices, imported.edges), (4, 3));
    let ids = std::fs::read_to_string(at("out/ids.txt")).unwrap();
    assert_eq!(ids, "ann\nbob\nc, d\neve\n");
    let set = load(at("out")).unwrap();
    assert_eq!(edges_of(&set).iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(0, 1), (0, 2), (1, 3)]);
    assert_eq!((&set.labels[..], set.n_classes), (&[0, 1, -1, -1][..], 2));
    assert_eq!((&set.train_idx[..], &set.val_idx[..], &set.test_idx[..]), (&[1][..], &[][..], &[0][..]));
    assert_eq!((set.features.dim(), set.features.dtype()), (2, Some(FeatureDtype::Bf16)));
    // A second import is refused, unless it replaces the first.
    let again = |overwrite| {
        let options = Options { overwrite, ..options.clone() };
        import(Format::Edges, &[at("edges.csv.gz")], &at("out"), &options, &mut quiet())
    };
    assert!(again(false).unwrap_err().to_string().contains("--overwrite"));
    assert_eq!(again(true).unwrap(), imported);
    text(&at("test.txt"), "zoe\n");
    let error = again(true).unwrap_err().to_string();
    assert!(error.contains("test.txt") && error.contains("line 1") && error.contains("zoe"), "{error}");
    assert_eq!(load(at("out")).unwrap().n_classes, 2, "a failed import leaves the old folder");
    text(&at("test.txt"), "");
    text(&at("labels.csv"), "bob,1\nann,x\n");
    assert!(again(true).unwrap_err().to_string().contains("labels.csv"));
}

#[test]
fn features_stay_halves_unless_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    text(&at("e.txt"), "0 1\n");
    let halves = [0.5, 1.0, -2.0, 6e-8].map(half::f16::from_f32);
    file(&at("half.npy"), &npy("<f2", false, &[2, 2], &halves));
    file(&at("single.npy"), &npy("<f4", false, &[2, 2], &halves.map(f32::from)));
    text(&at("x.csv"), "0.5,1\n-2,0\n");
    for (name, wanted, expected) in [
        ("half.npy", None, FeatureDtype::F16),
        ("half.npy", Some(FeatureDtype::F32), FeatureDtype::F32),
        ("single.npy", None, FeatureDtype::F32),
        ("single.npy", Some(FeatureDtype::F16), FeatureDtype::F16),
        ("x.csv", None, FeatureDtype::F32),
    ] {
        let read = ReadOptions { feature_dtype: wanted, ..ReadOptions::default() };
        let options = Options { read, features: Some(at(name)), overwrite: true, ..options() };
        import(Format::Edges, &[at("e.txt")], &at("out"), &options, &mut quiet()).unwrap();
        let set = load(at("out")).unwrap();
        assert_eq!(set.features.dtype(), Some(expected), "{name}");
        if name != "x.csv" {
            let array = NpyArray::open(&at("out/feat.npy"), "feat").unwrap().floats().unwrap();
            assert_eq!(array[..], halves.map(f32::from), "{name}");
        }
    }
}

#[test]
fn random_splits_have_their_shares_of_the_labelled_vertices() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    text(&at("e.txt"), "0 999\n");
    let labels: String = (0..1000).map(|v| format!("{}\n", if v % 10 == 0 { -1 } else { v % 3 })).collect();
    text(&at("y.txt"), &labels);
    let split = |split: &str, seed| {
        let options = Options {
            labels: Some(at("y.txt")),
            split: Some(split.parse().unwrap()),
            seed,
            overwrite: true,
            ..options()
        };
        import(Format::Edges, &[at("e.txt")], &at("out"), &options, &mut quiet()).unwrap();
        let set = load(at("out")).unwrap();
        [&set.train_idx, &set.val_idx, &set.test_idx].map(|part| part.to_vec())
    };
    let parts = split(".6,.2,.2", 1);
    assert_eq!(parts.each_ref().map(Vec::len), [540, 180, 180]);
    let all: BTreeSet<u32> = parts.concat().into_iter().collect();
    assert!(all.len() == 900 && all.iter().all(|v| v % 10 != 0));
    assert_eq!(split(".6,.2,.2", 1), parts);
    assert_ne!(split(".6,.2,.2", 2), parts);
    // Each vertex is as likely in each part as every other: for 400 seeds, 240 times for training, within 6 deviations.
    let mut trained = vec![0; 1000];
    (0..400).for_each(|seed| split(".6,.2,.2", seed)[0].iter().for_each(|&v| trained[v as usize] += 1));
    let within = |v: usize| v.is_multiple_of(10) || (181..=299).contains(&trained[v]);
    assert!((0..1000).all(within));
    assert_eq!(split("1,0,0", 3).each_ref().map(Vec::len), [900, 0, 0]);
    assert_eq!(split("0.1,0,0", 1).each_ref().map(Vec::len), [90, 0, 0]);
    for wrong in ["", ".5,.5", ".6,.6,.2", "-1,1,1", "0,0,0", "nan,0,1", "a.txt,,b.txt"] {
        assert!(wrong.parse::<SplitFrom>().is_err(), "{wrong}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refused = |lines: &str, options: &Options, texts: &[&str]| {
        text(&at("e.txt"), lines);
        let error =
            import(Format::Edges, &[at("e.txt")], &at("out"), options, &mut quiet()).unwrap_err().to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}: expected {texts:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{error}");
    };
    let plain = options();
    refused("", &plain, &["e.txt", "neither vertices nor edges"]);
    refused("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", &plain, &["line 1", "mtx"]);
    refused("0 1\n2\n", &plain, &["e.txt", "line 2", "destination"]);
    refused("0 1\n-1 2\n", &plain, &["line 2", "-1", "--ids map"]);
    refused("0 4294967295\n", &plain, &["line 1", "4294967295"]);
    let with = |read: ReadOptions| Options { read, ..options() };
    let limited = |n, map_ids| {
        let text = EdgeText { map_ids, ..EdgeText::default() };
        with(ReadOptions { n_vertices: Some(n), text, ..ReadOptions::default() })
    };
    let beyond = "e.txt: line 3: id \"5\": expected an integer from 0 to 4, as --num-vertices is 5";
    refused("# a\n0 1\n5 2\n", &limited(5, false), &[beyond]);
    refused("0 1\nx 2\n", &limited(5, false), &["line 2: id \"x\"", "or --ids map"]);
    refused(
        "b a\na c\n",
        &limited(2, true),
        &["e.txt: line 2: id \"c\" is one more than the 2 of --num-vertices"],
    );
    refused("0 1\n", &limited(0, false), &["--num-vertices is 0"]);
    let columns = |columns: &[Column]| {
        let text = EdgeText { columns: columns.to_vec(), ..EdgeText::default() };
        with(ReadOptions { text, ..ReadOptions::default() })
    };
    let both = [Column::Source, Column::Destination];
    refused("0 1\n", &columns(&both[..1]), &["--columns"]);
    for (column, value) in
        [(Column::Weight, "nan"), (Column::Weight, "-1"), (Column::Type, "-1"), (Column::Time, "x")]
    {
        refused(&format!("0 1 {value}\n"), &columns(&[both[0], both[1], column]), &["line 1", value]);
    }
    refused("0 1\n", &Options { memory: 1 << 20, ..options() }, &["--memory"]);
    // Interrupted at any moment.
    text(&at("e.txt"), "0 1\n1 2\n");
    for calls in 0..4 {
        let mut n = 0;
        let mut progress = |_: &str, _: f64| {
            n += 1;
            if n > calls { Err(Error::Interrupted { epochs: 0 }) } else { Ok(()) }
        };
        let result = import(Format::Edges, &[at("e.txt")], &at("out"), &options(), &mut progress);
        match result {
            Err(Error::Interrupted { .. }) => {
                assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{calls}");
            }
            other => assert!(calls == 3 && other.is_ok(), "{calls}: {other:?}"),
        }
    }
}

#[test]
fn overwriting_replaces_data_sets_only() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("edges.txt"), folder.path().join("out"));
    std::fs::write(&input, "0 1\n1 2\n").unwrap();
    std::fs::create_dir(&out).unwrap();
    let options = Options { memory: LEAST_MEMORY, overwrite: true, ..Options::default() };
    let run = |options: &Options| {
        import(Format::Edges, std::slice::from_ref(&input), &out, options, &mut |_, _| Ok(()))
    };
    std::fs::write(out.join("precious"), "work").unwrap();
    assert!(run(&options).unwrap_err().to_string().contains("no data set"));
    assert_eq!(std::fs::read_to_string(out.join("precious")).unwrap(), "work");
    std::fs::remove_file(out.join("precious")).unwrap();
    // Into the empty folder, then over the data set.
    for _ in 0..2 {
        assert_eq!(run(&options).unwrap().edges, 2);
    }
}
