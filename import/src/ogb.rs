//! Node property prediction data sets of the Open Graph Benchmark, as their archives unpack: `raw/` and `split/`.
//!
//! There are four layouts: one or several types of vertices, in `.csv.gz` or in `.npz` files. What OGB's loader adds to
//! the files (reversed edges, the usual split, the number of classes) it takes from a table by the data set's name;
//! [`KNOWN`] is that table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cohop::{Error, Result};

use crate::array::{Place, array_names};
use crate::labels;
use crate::sink::Sink;
use crate::table::Table;
use crate::text::Lines;
use crate::typed::{Relation, Typed, VertexType, write_split};
use crate::{Found, Progress, ReadOptions};

/// What OGB's loader knows of a data set (`ogb/nodeproppred/master.csv`).
#[derive(Debug, PartialEq)]
struct Known {
    /// Without `ogbn-`.
    name: &'static str,
    n_classes: usize,
    /// Edges are stored in one direction, and meant in both.
    add_inverse: bool,
    split: &'static str,
}

const KNOWN: [Known; 5] = [
    Known { name: "proteins", n_classes: 2, add_inverse: true, split: "species" },
    Known { name: "products", n_classes: 47, add_inverse: true, split: "sales_ranking" },
    Known { name: "arxiv", n_classes: 40, add_inverse: false, split: "time" },
    Known { name: "mag", n_classes: 349, add_inverse: false, split: "time" },
    Known { name: "papers100M", n_classes: 172, add_inverse: false, split: "time" },
];

/// The data set, by the folder's name or by its release note.
fn known(folder: &Path) -> Option<&'static Known> {
    let folder = folder.canonicalize().ok()?;
    let by_name = |name: &str| KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name));
    let name = folder.file_name()?.to_string_lossy().replace('-', "_");
    // As the loader names it, or as the archive does.
    let name = name.strip_prefix("ogbn_").unwrap_or(&name);
    if let Some(known) = by_name(name.strip_suffix("_bin").unwrap_or(name)) {
        return Some(known);
    }
    let release = (1..10).map(|v| folder.join(format!("RELEASE_v{v}.txt"))).find(|path| path.is_file())?;
    let mut lines = Lines::open(&release).ok()?;
    let line = lines.next_line().ok()??;
    by_name(line.split_whitespace().find_map(|word| word.strip_prefix("ogbn-"))?)
}

/// A folder's contents, before they are read.
struct Layout {
    graph: Typed,
    /// What says how many vertices there are.
    counts: Place,
    /// Of each type of vertices.
    labels: Vec<Option<Place>>,
    has_types: bool,
    /// Files and arrays that have no use here.
    unused: BTreeSet<String>,
}

pub(crate) fn read(
    input: &Path,
    options: &ReadOptions,
    folder: &Path,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Found> {
    let known = known(input);
    let add_inverse = known.is_some_and(|known| known.add_inverse);
    let Layout { graph, counts, labels, has_types, unused } = layout(input, add_inverse)?;
    let starts = graph.starts(&counts)?;
    let mut found = Found::default();
    match known {
        Some(Known { name, add_inverse: true, .. }) => found.notes.push(format!(
            "ogbn-{name} has each edge in one direction only: its reverse is added, as by OGB's own loader"
        )),
        Some(Known { name, .. }) => {
            found.notes.push(format!("ogbn-{name}: edges go as they are stored, as by OGB's own loader"));
        }
        None => found.notes.push(
            "neither the folder's name nor a RELEASE file says which of OGB's data sets this is: edges go as they are \
             stored; if that is in one direction only, --undirected adds the other"
                .into(),
        ),
    }
    found.n_vertices = starts.last().copied();
    // Splits first: they are small, and what is wrong with them need not wait for the edges.
    let split = split_folder(input, options, known, &mut found)?;
    if let Some(split) = split {
        let types = split_types(&split, &graph.types, has_types)?;
        for (file, name) in [("train", "train_idx.npy"), ("valid", "val_idx.npy"), ("test", "test_idx.npy")] {
            let mut parts = Vec::new();
            for &i in &types {
                let path = split.join(if has_types { &graph.types[i].name } else { "" });
                parts.push((Place::text(csv(&path, file)), starts[i], graph.types[i].n));
            }
            write_split(folder, name, &parts, &mut found, &mut *progress)?;
        }
    }
    let parts: Vec<_> =
        graph.types.iter().zip(&labels).map(|(kind, place)| (&*kind.name, kind.n, place.as_ref())).collect();
    found.n_classes = known.map(|known| known.n_classes);
    labels::write(folder, &parts, options, &|_| "", &mut found, &mut *progress)?;
    graph.write_vertices(folder, options.feature_dtype, &mut found, &mut *progress)?;
    graph.read_edges(&starts, folder, sink, &mut found, &mut *progress)?;
    if !unused.is_empty() {
        let unused: Vec<_> = unused.into_iter().collect();
        found.notes.push(format!("not imported: {}", unused.join(", ")));
    }
    Ok(found)
}

fn csv(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.csv.gz"))
}

/// The file, if there is one.
fn optional(path: PathBuf) -> Option<Place> {
    path.is_file().then(|| Place::text(path))
}

/// Finds out which layout it is, and reads what is small.
fn layout(input: &Path, add_inverse: bool) -> Result<Layout> {
    let raw = input.join("raw");
    type Reader = fn(&Path) -> Result<Layout>;
    let layouts: [(PathBuf, Reader); 4] = [
        (raw.join("data.npz"), arrays),
        (raw.join("edge_index_dict.npz"), typed_arrays),
        (csv(&raw, "triplet-type-list"), typed_text),
        (csv(&raw, "edge"), text),
    ];
    let Some((_, read)) = layouts.iter().find(|(path, _)| path.is_file()) else {
        return Err(Error::format(
            raw,
            "has none of edge.csv.gz, triplet-type-list.csv.gz, data.npz, edge_index_dict.npz: expected the folder of \
             a node property prediction data set of OGB, such as ogbn_arxiv",
        ));
    };
    let mut layout = read(&raw)?;
    layout.graph.add_inverse = add_inverse;
    Ok(layout)
}

/// One type, text: as ogbn-arxiv, ogbn-products and ogbn-proteins are.
fn text(raw: &Path) -> Result<Layout> {
    let counts = Place::text(csv(raw, "num-node-list"));
    let n = single(&counts)?;
    let n_edges = Place::text(csv(raw, "num-edge-list"));
    let relation = Relation {
        name: String::new(),
        source: 0,
        destination: 0,
        edges: Place::text(csv(raw, "edge")),
        n: Some((single(&n_edges)?, n_edges)),
        features: optional(csv(raw, "edge-feat")),
    };
    let kind = VertexType { name: String::new(), n, features: optional(csv(raw, "node-feat")) };
    let used = ["num-node-list", "num-edge-list", "edge", "edge-feat", "node-feat", "node-label"];
    Ok(Layout {
        graph: Typed { types: vec![kind], relations: vec![relation], add_inverse: false },
        counts,
        labels: vec![Some(Place::text(csv(raw, "node-label")))],
        has_types: false,
        unused: other_text(raw, &used)?,
    })
}

/// Names of `.csv.gz` files that are not `used`.
fn other_text(folder: &Path, used: &[&str]) -> Result<BTreeSet<String>> {
    let mut other = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let name = entry.map_err(|e| Error::io(folder, e))?.file_name().to_string_lossy().into_owned();
        if name.strip_suffix(".csv.gz").is_some_and(|stem| !used.contains(&stem)) {
            other.insert(name);
        }
    }
    Ok(other)
}

/// One type, arrays: as ogbn-papers100M is.
fn arrays(raw: &Path) -> Result<Layout> {
    let data = raw.join("data.npz");
    let names = array_names(&data)?;
    let has = |name: &str| names.iter().any(|other| other == name).then(|| Place::member(&data, name));
    let counts = Place::member(&data, "num_nodes_list");
    let n_edges = Place::member(&data, "num_edges_list");
    let relation = Relation {
        name: String::new(),
        source: 0,
        destination: 0,
        edges: Place::member(&data, "edge_index"),
        n: Some((single(&n_edges)?, n_edges)),
        features: has("edge_feat"),
    };
    let kind = VertexType { name: String::new(), n: single(&counts)?, features: has("node_feat") };
    let used = ["num_nodes_list", "num_edges_list", "edge_index", "edge_feat", "node_feat"];
    Ok(Layout {
        graph: Typed { types: vec![kind], relations: vec![relation], add_inverse: false },
        counts,
        labels: vec![Some(Place::member(raw.join("node-label.npz"), "node_label"))],
        has_types: false,
        unused: names.into_iter().filter(|name| !used.contains(&name.as_str())).collect(),
    })
}

/// Several types, text: as ogbn-mag is.
fn typed_text(raw: &Path) -> Result<Layout> {
    let path = csv(raw, "num-node-dict");
    let counts = Place::text(&path);
    let mut unused = BTreeSet::new();
    let mut types = Vec::new();
    for (name, n) in header_and_row(&path)? {
        let n =
            n.parse().map_err(|_| counts.error(format!("{n} vertices of type {name}: expected a number")))?;
        let folder = raw.join("node-feat").join(&name);
        if folder.is_dir() {
            unused.extend(other_text(&folder, &["node-feat"])?);
        }
        types.push(VertexType { n, features: optional(csv(&folder, "node-feat")), name });
    }
    let list = csv(raw, "triplet-type-list");
    let mut triplets = BTreeSet::new();
    for row in words(&list)? {
        let [source, relation, destination] = <[String; 3]>::try_from(row).map_err(|row| {
            Error::format(
                &list,
                format!("has {} columns, expected 3: source, relation, destination", row.len()),
            )
        })?;
        triplets.insert([source, relation, destination]);
    }
    let mut relations = Vec::new();
    for triplet in triplets {
        let name = triplet.join("___");
        let folder = raw.join("relations").join(&name);
        let n_edges = Place::text(csv(&folder, "num-edge-list"));
        let [source, destination] = ends(&types, &name, &Place::text(&list))?;
        unused.extend(other_text(&folder, &["edge", "num-edge-list", "edge-feat"])?);
        relations.push(Relation {
            name,
            source,
            destination,
            edges: Place::text(csv(&folder, "edge")),
            n: Some((single(&n_edges)?, n_edges)),
            features: optional(csv(&folder, "edge-feat")),
        });
    }
    let has_label = header_and_row(&csv(raw, "nodetype-has-label"))?;
    let place = |name: &str| Place::text(csv(&raw.join("node-label").join(name), "node-label"));
    let labels =
        types.iter().map(|kind| is_true(&has_label, &kind.name).then(|| place(&kind.name))).collect();
    let graph = Typed { types, relations, add_inverse: false };
    Ok(Layout { graph, counts, labels, has_types: true, unused })
}

/// Several types, arrays.
fn typed_arrays(raw: &Path) -> Result<Layout> {
    let file = |name: &str| raw.join(format!("{name}.npz"));
    let members = |path: &Path| -> Result<BTreeMap<String, Place>> {
        let names = if path.is_file() { array_names(path)? } else { Vec::new() };
        Ok(names.into_iter().map(|name| (name.clone(), Place::member(path, &name))).collect())
    };
    let counts = file("num_nodes_dict");
    let (node_feat, edge_feat) = (members(&file("node_feat_dict"))?, members(&file("edge_feat_dict"))?);
    let mut types = Vec::new();
    for name in array_names(&counts)? {
        let n = single(&Place::member(&counts, &name))?;
        types.push(VertexType { n, features: node_feat.get(&name).cloned(), name });
    }
    let edges = file("edge_index_dict");
    let mut triplets: Vec<_> = array_names(&edges)?;
    triplets.sort_by_cached_key(|name| name.split("___").map(str::to_owned).collect::<Vec<_>>());
    let mut relations = Vec::new();
    for name in triplets {
        let n_edges = Place::member(file("num_edges_dict"), &name);
        let [source, destination] = ends(&types, &name, &Place::text(&edges))?;
        relations.push(Relation {
            source,
            destination,
            edges: Place::member(&edges, &name),
            n: Some((single(&n_edges)?, n_edges)),
            features: edge_feat.get(&name).cloned(),
            name,
        });
    }
    let label = members(&file("node-label"))?;
    if label.is_empty() {
        let problem =
            "no such file, or it has no arrays: expected the labels of vertices, an array for each type";
        return Err(Error::format(file("node-label"), problem));
    }
    let used = [
        "num_nodes_dict",
        "num_edges_dict",
        "edge_index_dict",
        "node-label",
        "node_feat_dict",
        "edge_feat_dict",
    ];
    let mut unused = BTreeSet::new();
    for entry in std::fs::read_dir(raw).map_err(|e| Error::io(raw, e))? {
        let name = entry.map_err(|e| Error::io(raw, e))?.file_name().to_string_lossy().into_owned();
        if name.strip_suffix(".npz").is_some_and(|stem| !used.contains(&stem)) {
            unused.insert(name);
        }
    }
    let labels = types.iter().map(|kind| label.get(&kind.name).cloned()).collect();
    let graph = Typed { types, relations, add_inverse: false };
    Ok(Layout { graph, counts: Place::text(counts), labels, has_types: true, unused })
}

/// The types that `source___relation___destination` joins.
fn ends(types: &[VertexType], name: &str, place: &Place) -> Result<[usize; 2]> {
    let parts: Vec<&str> = name.split("___").collect();
    let find = |part: &str| {
        types.iter().position(|kind| kind.name == part).ok_or_else(|| {
            let known: Vec<_> = types.iter().map(|kind| kind.name.as_str()).collect();
            place.error(format!("{name}: {part} is no type of vertices: these are {}", known.join(", ")))
        })
    };
    match parts[..] {
        [source, _, destination] => Ok([find(source)?, find(destination)?]),
        _ => Err(place.error(format!("{name}: expected source___relation___destination"))),
    }
}

/// The only number of a list of them: these data sets have one graph.
fn single(place: &Place) -> Result<u64> {
    let mut table = Table::open(place)?;
    let first = table.next()?.map(|row| row[0]);
    let n = first.filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n));
    let n = n.ok_or_else(|| place.error("expected a number of vertices or edges of at least 0"))?;
    match table.next()? {
        None => Ok(n as u64),
        Some(_) => Err(place.error("has several graphs: expected one")),
    }
}

/// Lines of text values. There are few in the files that have them.
fn words(path: &Path) -> Result<Vec<Vec<String>>> {
    const MOST: usize = 1 << 24;
    let mut lines = Lines::open(path)?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(line) = lines.next_line()?.map(str::to_owned) {
        bytes += line.len() + 1;
        if bytes > MOST {
            return Err(lines.error(format!("is beyond {MOST} bytes: expected a few names")));
        }
        let mut csv = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
        if let Some(record) = csv.records().next() {
            let record = record.map_err(|e| lines.error(e))?;
            rows.push(record.iter().map(str::to_owned).collect());
        }
    }
    Ok(rows)
}

/// A line of names, each with its value in the next line, sorted by name.
fn header_and_row(path: &Path) -> Result<BTreeMap<String, String>> {
    let rows = words(path)?;
    let [header, row] = &rows[..] else {
        return Err(Error::format(
            path,
            format!("has {} lines, expected 2: names and their values", rows.len()),
        ));
    };
    let pairs: BTreeMap<_, _> = header.iter().cloned().zip(row.iter().cloned()).collect();
    if header.len() != row.len() || pairs.len() != header.len() {
        return Err(Error::format(path, "expected as many values as names, and no name twice"));
    }
    Ok(pairs)
}

fn is_true(flags: &BTreeMap<String, String>, name: &str) -> bool {
    flags.get(name).is_some_and(|flag| flag == "True")
}

/// The folder of the split to use.
fn split_folder(
    input: &Path,
    options: &ReadOptions,
    known: Option<&Known>,
    found: &mut Found,
) -> Result<Option<PathBuf>> {
    let folder = input.join("split");
    let mut names = Vec::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(&folder).map_err(|e| Error::io(&folder, e))? {
            let entry = entry.map_err(|e| Error::io(&folder, e))?;
            if entry.path().is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    names.sort_unstable();
    let name = match (&options.split_name, &names[..]) {
        (Some(name), _) if names.contains(name) => name,
        (Some(name), _) => {
            let expected = format!("one of the splits of {}: {}", folder.display(), names.join(", "));
            return Err(Error::invalid("--split-name", name, expected));
        }
        (None, []) => {
            found
                .notes
                .push("there is no folder split: no vertex is for training, validation or test".into());
            return Ok(None);
        }
        (None, [name]) => name,
        (None, _) => {
            let usual = names.iter().find(|name| known.is_some_and(|known| known.split == **name));
            let Some(usual) = usual else {
                let problem = format!("has several splits: choose one by --split-name: {}", names.join(", "));
                return Err(Error::format(&folder, problem));
            };
            found.notes.push(format!("split {usual}, the usual one of {}", names.join(", ")));
            usual
        }
    };
    let folder = folder.join(name);
    let has_text = csv(&folder, "train").is_file() || csv(&folder, "nodetype-has-split").is_file();
    if !has_text && folder.join("split_dict.pt").is_file() {
        return Err(Error::format(
            folder.join("split_dict.pt"),
            "is a file of PyTorch, which is not read: for each part of torch.load(..) do \
             pandas.DataFrame(part).to_csv('train.csv.gz', header=False, index=False), for valid and test too",
        ));
    }
    Ok(Some(folder))
}

/// The types of vertices that a split has.
fn split_types(folder: &Path, types: &[VertexType], has_types: bool) -> Result<Vec<usize>> {
    if !has_types {
        return Ok(vec![0]);
    }
    let flags = header_and_row(&csv(folder, "nodetype-has-split"))?;
    Ok((0..types.len()).filter(|&i| is_true(&flags, &types[i].name)).collect())
}

#[cfg(test)]
mod tests;
