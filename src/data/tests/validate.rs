//! Every way in which the parts may not fit together, and the summary.

use super::*;

#[test]
fn parts_that_do_not_fit_are_named() {
    let good = small(dense());
    let broken = |change: &dyn Fn(&mut Dataset)| {
        let mut dataset = good.clone();
        change(&mut dataset);
        message(dataset.validate())
    };
    let narrow = Features::dense(vec![0.0; 6], 3, 2).unwrap();
    assert_eq!(
        broken(&|d| d.features = narrow.clone()),
        "shape mismatch in data set: features is [3, 2], required is [4, 2]"
    );
    assert_eq!(broken(&|d| d.labels = vec![0; 5].into()), "labels has 5 elements, expected 4");
    let range = "is out of range: expected a value below";
    assert_eq!(broken(&|d| d.labels = vec![0, 1, 3, 0].into()), format!("labels[2] = 3 {range} 3"));
    assert_eq!(
        broken(&|d| d.labels = vec![0, -100, 1, 0].into()),
        "labels is -100 at position 1: expected a class, or -1 for a vertex without one"
    );
    assert!(broken(&|d| d.n_classes = 0).starts_with("labels[0] = 0 is out of range: expected none"));
    assert!(broken(&|d| d.n_classes = usize::MAX).starts_with("the set of classes has"));
    assert_eq!(broken(&|d| d.vertex_type = Some(vec![0].into())), "vertex_type has 1 element, expected 4");
    assert_eq!(broken(&|d| d.train_idx[1] = 4), format!("train_idx[1] = 4 {range} 4"));
    assert_eq!(broken(&|d| d.test_idx[0] = u32::MAX), format!("test_idx[0] = 4294967295 {range} 4"));
    let once = "expected every vertex at most once in a split";
    assert_eq!(
        broken(&|d| d.train_idx = vec![2, 0, 2]),
        format!("train_idx is 2 at position 2, already in train_idx[0]: {once}")
    );
    assert_eq!(
        broken(&|d| d.test_idx = vec![1, 3]),
        format!("test_idx is 3 at position 1, already in val_idx[0]: {once}")
    );
    let twice = Split { train: vec![1], val: vec![], test: vec![1] };
    assert_eq!(
        broken(&|d| d.splits = vec![Split::default(), twice.clone()]),
        format!("test_idx is 1 at position 0, already in train_idx[0] of split 1: {once}")
    );
}

#[test]
fn splits_are_chosen_by_number() {
    let mut dataset = small(Features::None);
    assert_eq!(message(dataset.select_split(0)), "split is 0: expected no choice: small has a single split");
    let second = Split { train: vec![3], val: vec![1], test: vec![0, 2] };
    dataset.splits = vec![Split::default(), second.clone()];
    dataset.select_split(1).unwrap();
    assert_eq!(
        (&dataset.train_idx, &dataset.val_idx, &dataset.test_idx),
        (&second.train, &second.val, &second.test)
    );
    assert_eq!(
        message(dataset.select_split(2)),
        "split is 2: expected below 2, the number of splits of small"
    );
    assert_eq!(dataset.train_idx, second.train, "a failed choice changes nothing");
}

#[test]
fn a_data_set_without_vertices_is_valid() {
    let graph = Graph::from_edges(0, &[]).unwrap();
    let features = Features::dense(Vec::new(), 0, 3).unwrap();
    let dataset = Dataset::new("empty", graph, features, Vec::new(), 0, Split::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    dataset.write(folder.path()).unwrap();
    let again = load(folder.path()).unwrap();
    assert_eq!((again.n_vertices(), again.features.dim()), (0, 3));
    assert!(again.summary().unwrap().to_string().contains("vertices"));
}

#[test]
fn the_summary_counts_everything() {
    let mut dataset = small(sparse());
    dataset.vertex_type = Some(vec![0, 1, 1, 1].into());
    let typed = (*dataset.graph).clone().with_edge_types(vec![0, 1, 1, 1], 3).unwrap();
    dataset.graph = typed.into();
    let summary = dataset.summary().unwrap();
    assert_eq!((summary.vertices, summary.edges, summary.relations), (4, 4, 3));
    assert_eq!(summary.relation_counts, [1, 3, 0]);
    assert_eq!(summary.vertex_type_counts, [1, 3]);
    assert_eq!((summary.degrees.min, summary.degrees.max, summary.isolated), (0, 2, 0));
    let features = summary.features.clone().unwrap();
    assert_eq!((features.dim, features.sparse, features.density), (5, true, 0.2));
    assert_eq!((summary.classes, summary.unlabelled), (3, 1));
    assert_eq!(summary.class_counts, [1, 1, 1]);
    assert_eq!((summary.train, summary.val, summary.test, summary.splits), (2, 1, 1, 0));
    assert_eq!(summary.train_class_counts.iter().sum::<u64>(), 2 - summary.unlabelled_in_split[0]);
    // indptr, indices, relations, types, labels, splits, sparse features.
    assert_eq!(summary.bytes_in_memory, 40 + 16 + 8 + 8 + 16 + 16 + (40 + 16 + 16));
    assert_eq!(summary.bytes_mapped, 0);

    let table = summary.to_string();
    let value_columns: Vec<usize> = table
        .lines()
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.find("  ").map(|gap| gap + line[gap..].find(|c| c != ' ').unwrap()).unwrap())
        .collect();
    assert!(value_columns.iter().all(|&c| c == value_columns[0]), "{table}");
    assert!(table.contains("5 columns, sparse f32, 20.000 % stored"), "{table}");
    assert!(table.contains("edges per relation  1, 3, 0"), "{table}");
    let json = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
}

/// Every oddity, in a graph spelled out.
#[test]
fn what_looks_odd_is_said() {
    // 0 ⇄ 1, 0 → 2 twice, a self-loop at 2, 3 → 0, and 4 alone.
    let edges = [(0, 1), (1, 0), (0, 2), (0, 2), (2, 2), (3, 0)];
    let graph = Graph::from_edges(5, &edges).unwrap();
    let rows = vec![1.0, 7.0, 2.0, 7.0, 3.0, 7.0, 4.0, 7.0, 5.0, 7.0];
    let features = Features::dense(rows, 5, 2).unwrap();
    let split = Split { train: vec![0, 1], val: vec![2], test: vec![3, 4] };
    let set = Dataset::new("odd", graph, features, vec![0, -1, 2, -1, -1], 4, split).unwrap();
    let summary = set.summary().unwrap();
    assert_eq!(summary.train_class_counts, [1, 0, 0, 0]);
    assert_eq!(summary.unlabelled_in_split, [1, 0, 2]);
    let expected = [
        "1: vertices without any edge",
        "1: vertices with out-edges but without in-edges, which see only themselves",
        "1: edges that repeat another one",
        "1: self-loops",
        "1: training vertices without a label",
        "2: test vertices without a label",
        "2: classes without a vertex",
        "1: classes with vertices, but without a training vertex",
        "1: feature columns with one and the same number",
        "60.00 % of the edges: without a reverse edge",
    ];
    assert_eq!(summary.oddities(), expected);
    let table = summary.to_string();
    assert!(expected.iter().all(|line| table.contains(line)), "{table}");
    // Of a sample, no digit that says nothing.
    let mut sampled = summary;
    sampled.edge_statistics.looked_at = 4;
    let estimated = "60.0 % of the edges, estimated: without a reverse edge".to_owned();
    assert_eq!(sampled.oddities().last(), Some(&estimated));

    // Nothing odd about it.
    let graph = Graph::from_edges(2, &[(0, 1), (1, 0)]).unwrap();
    let features = Features::dense(vec![1.0, 2.0], 2, 1).unwrap();
    let split = Split { train: vec![0, 1], ..Split::default() };
    let set = Dataset::new("even", graph, features, vec![0, 1], 2, split).unwrap();
    assert!(set.summary().unwrap().oddities().is_empty());

    // Twenty times the vertices.
    let labels: Vec<i32> = (0..21).map(|v| i32::from(v == 0)).collect();
    let edges: Vec<(u32, u32)> = (0..20).flat_map(|v| [(v, v + 1), (v + 1, v)]).collect();
    let graph = Graph::from_edges(21, &edges).unwrap();
    let split = Split { train: (0..21).collect(), ..Split::default() };
    let set = Dataset::new("uneven", graph, Features::None, labels, 2, split).unwrap();
    assert_eq!(set.summary().unwrap().oddities(), ["classes of 1 to 20 vertices"]);
}
