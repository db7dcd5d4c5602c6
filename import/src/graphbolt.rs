//! On-disk data sets of DGL's GraphBolt: a folder with `metadata.yaml`, as its `OnDiskDataset` takes it.
//!
//! Types of vertices and edges are numbered in the order of their names, as GraphBolt does.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use cohop::data::npy::{Dtype, Writer};
use cohop::{Error, Result};
use serde::Deserialize;

use crate::array::{ArrayStream, Place};
use crate::labels::{self, Scattered};
use crate::sink::Sink;
use crate::table::Table;
use crate::typed::{Relation, Typed, VertexType, out_of_range, vertex};
use crate::{Found, Progress, ReadOptions};

/// A longer `metadata.yaml` is something else.
const MAX_METADATA_BYTES: u64 = 1 << 24;

#[derive(Deserialize)]
struct Metadata {
    graph: Option<Graph>,
    /// Of a preprocessed data set, in place of `graph`.
    graph_topology: Option<serde::de::IgnoredAny>,
    feature_data: Option<Vec<Feature>>,
    tasks: Option<Vec<Task>>,
}

#[derive(Deserialize)]
struct Graph {
    nodes: Vec<Nodes>,
    edges: Vec<Edges>,
    /// Arrays beside the structure, as weights by which GraphBolt's samplers draw.
    feature_data: Option<Vec<Attribute>>,
}

/// What is not read, so that nothing of it need be right.
#[derive(Deserialize)]
struct Attribute {
    domain: Option<String>,
    r#type: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Nodes {
    r#type: Option<String>,
    num: u64,
}

#[derive(Deserialize)]
struct Edges {
    r#type: Option<String>,
    format: EdgeFormat,
    path: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum EdgeFormat {
    Csv,
    Numpy,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Format {
    Numpy,
    Torch,
}

#[derive(Deserialize)]
struct Feature {
    domain: String,
    r#type: Option<String>,
    name: String,
    format: Format,
    path: String,
}

#[derive(Deserialize)]
struct Task {
    name: Option<String>,
    num_classes: Option<u64>,
    train_set: Option<Vec<Set>>,
    validation_set: Option<Vec<Set>>,
    test_set: Option<Vec<Set>>,
}

#[derive(Deserialize)]
struct Set {
    r#type: Option<String>,
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    name: Option<String>,
    format: Format,
    path: String,
}

/// What is read, and how.
struct Source<'a> {
    input: &'a Path,
    /// `metadata.yaml`, for messages.
    place: &'a Place,
    options: &'a ReadOptions,
    /// Where files are written.
    folder: &'a Path,
}

pub(crate) fn read(
    input: &Path,
    options: &ReadOptions,
    folder: &Path,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Found> {
    let path = input.join("metadata.yaml");
    let metadata = read_metadata(&path)?;
    let place = Place::text(&path);
    let Some(graph) = metadata.graph else {
        return Err(place.error(match metadata.graph_topology {
            Some(_) => {
                "describes a preprocessed data set, whose graph is a file of PyTorch: expected the folder with the \
                 metadata.yaml that has `graph`, with its edges as csv or numpy"
            }
            None => "has no `graph`: expected its nodes and edges",
        }));
    };
    let mut found = Found::default();
    let names: Vec<String> = graph.feature_data.iter().flatten().map(Attribute::name).collect();
    if !names.is_empty() {
        found.notes.push(format!("not imported of graph.feature_data: {}", names.join(", ")));
    }
    let features = metadata.feature_data.unwrap_or_default();
    let typed = typed(input, &place, graph, &features, &mut found)?;
    let starts = typed.starts(&place)?;
    let n = starts[starts.len() - 1];
    found.n_vertices = Some(n);
    let source = Source { input, place: &place, options, folder };
    read_task(&source, &metadata.tasks.unwrap_or_default(), &starts, &typed, &mut found, &mut *progress)?;
    typed.write_vertices(folder, options.feature_dtype, &mut found, &mut *progress)?;
    typed.read_edges(&starts, folder, sink, &mut found, &mut *progress)?;
    Ok(found)
}

impl Attribute {
    /// As `edge weight` or `edge user:click:item weight`.
    fn name(&self) -> String {
        let parts = [&self.domain, &self.r#type, &self.name];
        parts
            .map(|part| part.as_deref().unwrap_or_default())
            .into_iter()
            .filter(|p| !p.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn read_metadata(path: &Path) -> Result<Metadata> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
    file.take(MAX_METADATA_BYTES + 1).read_to_string(&mut text).map_err(|e| Error::io(path, e))?;
    if text.len() as u64 > MAX_METADATA_BYTES {
        return Err(Error::format(path, format!("is longer than {MAX_METADATA_BYTES} bytes")));
    }
    serde_norway::from_str(&text).map_err(|e| Error::format(path, e))
}

/// Types of vertices and edges, with their files.
fn typed(
    input: &Path,
    place: &Place,
    graph: Graph,
    features: &[Feature],
    found: &mut Found,
) -> Result<Typed> {
    let alone = graph.nodes.len() == 1 && graph.edges.len() == 1;
    let name = |what: &str, i: usize, name: Option<String>| match name {
        Some(name) => Ok(name),
        None if alone => Ok(String::new()),
        None => {
            Err(place.error(format!("graph.{what}[{i}] has no type: expected one, as there are several")))
        }
    };
    fn twice<'a>(mut sorted: impl Iterator<Item = &'a String>) -> Option<&'a String> {
        let mut last = sorted.next()?;
        sorted.find(|name| std::mem::replace(&mut last, name) == *name)
    }
    let mut of_vertices = choose(input, place, "node", features, found)?;
    let mut of_edges = choose(input, place, "edge", features, found)?;
    let mut types = Vec::new();
    for (i, nodes) in graph.nodes.into_iter().enumerate() {
        let name = name("nodes", i, nodes.r#type)?;
        types.push(VertexType { n: nodes.num, features: of_vertices.remove(&name), name });
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(name) = twice(types.iter().map(|kind| &kind.name)) {
        return Err(place.error(format!("graph.nodes has type {name} twice")));
    }
    let mut relations = Vec::new();
    for (i, edges) in graph.edges.into_iter().enumerate() {
        let name = name("edges", i, edges.r#type)?;
        let parts: Vec<&str> = name.split(':').collect();
        let find = |part: &str| {
            types.iter().position(|kind| kind.name == part).ok_or_else(|| {
                place.error(format!("graph.edges[{i}].type {name}: {part} is no type of graph.nodes"))
            })
        };
        let [source, destination] = match parts[..] {
            [""] => [0, 0],
            [source, _, destination] => [find(source)?, find(destination)?],
            _ => {
                let problem = format!("graph.edges[{i}].type {name}: expected source:relation:destination");
                return Err(place.error(problem));
            }
        };
        let path = input.join(&edges.path);
        let edges = match edges.format {
            EdgeFormat::Csv => Place::text(path),
            EdgeFormat::Numpy => Place::npy(path),
        };
        let features = of_edges.remove(&name);
        relations.push(Relation { name, source, destination, edges, n: None, features });
    }
    relations.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(name) = twice(relations.iter().map(|relation| &relation.name)) {
        return Err(place.error(format!("graph.edges has type {name} twice")));
    }
    if let Some(name) = of_vertices.keys().chain(of_edges.keys()).next() {
        return Err(place.error(format!("feature_data has type {name}, which graph has not")));
    }
    Ok(Typed { types, relations, add_inverse: false })
}

/// The features to use of nodes or edges, by type: those named `feat`, or the only ones.
fn choose(
    input: &Path,
    place: &Place,
    domain: &str,
    features: &[Feature],
    found: &mut Found,
) -> Result<BTreeMap<String, Place>> {
    let mut by_name: BTreeMap<&str, Vec<&Feature>> = BTreeMap::new();
    for feature in features.iter().filter(|feature| feature.domain == domain) {
        by_name.entry(&feature.name).or_default().push(feature);
    }
    let names: Vec<&str> = by_name.keys().copied().collect();
    let name = match names[..] {
        [] => return Ok(BTreeMap::new()),
        [name] => name,
        _ if by_name.contains_key("feat") => {
            let others: Vec<_> = names.iter().copied().filter(|name| *name != "feat").collect();
            found
                .notes
                .push(format!("{domain} features not imported, as one is named feat: {}", others.join(", ")));
            "feat"
        }
        _ => {
            let names = names.join(", ");
            return Err(place.error(format!(
                "feature_data of domain {domain}: {names}: expected one, or one named feat"
            )));
        }
    };
    let mut places = BTreeMap::new();
    for feature in &by_name[name] {
        let kind = feature.r#type.clone().unwrap_or_default();
        let file = numpy(input, place, feature.format, &feature.path)?;
        if places.insert(kind.clone(), file).is_some() {
            return Err(
                place.error(format!("feature_data has {domain} feature {name} of type {kind:?} twice"))
            );
        }
    }
    Ok(places)
}

/// The file at a path of the metadata.
fn numpy(input: &Path, place: &Place, format: Format, path: &str) -> Result<Place> {
    match format {
        Format::Torch => Err(place.error(format!(
            "{path} has format torch, which is not read: numpy.save(.., torch.load(..).numpy()) makes it numpy"
        ))),
        Format::Numpy => Ok(Place::npy(input.join(path))),
    }
}

impl Set {
    fn named(&self, names: &[&str]) -> Option<&Data> {
        self.data.iter().find(|data| data.name.as_deref().is_some_and(|name| names.contains(&name)))
    }

    /// The vertices; called `seed_nodes` before DGL 2.2.
    fn seeds(&self) -> Option<&Data> {
        self.named(&["seeds", "seed_nodes"])
    }
}

impl Task {
    fn parts(&self) -> [(&'static str, &'static str, &[Set]); 3] {
        fn sets(sets: &Option<Vec<Set>>) -> &[Set] {
            sets.as_deref().unwrap_or_default()
        }
        [
            ("train_set", "train_idx.npy", sets(&self.train_set)),
            ("validation_set", "val_idx.npy", sets(&self.validation_set)),
            ("test_set", "test_idx.npy", sets(&self.test_set)),
        ]
    }

    /// Whether it is about vertices: the seeds of other tasks are pairs of them, or edges of a type.
    fn is_of_vertices(&self, input: &Path) -> Result<bool> {
        let parts = self.parts();
        let mut sets = parts.iter().flat_map(|(_, _, sets)| sets.iter());
        let Some(set) = sets.next() else { return Ok(false) };
        let Some(seeds) = set.seeds() else { return Ok(false) };
        match seeds.format {
            Format::Torch => Ok(true),
            Format::Numpy => {
                Ok(ArrayStream::open(&Place::npy(input.join(&seeds.path)))?.header().shape.len() == 1)
            }
        }
    }
}

/// Reads the first task about vertices: writes its sets, and the labels of their vertices.
fn read_task(
    source: &Source<'_>,
    tasks: &[Task],
    starts: &[u64],
    typed: &Typed,
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<()> {
    let Source { input, place, options, folder } = *source;
    let mut chosen = None;
    let mut others = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        if chosen.is_none() && task.is_of_vertices(input)? {
            chosen = Some((i, task));
        } else {
            others.push(task.name.clone().unwrap_or_else(|| format!("number {i}")));
        }
    }
    if !others.is_empty() {
        let only = "the first task whose seeds are vertices is";
        found.notes.push(format!("tasks not imported, as only {only}: {}", others.join(", ")));
    }
    let Some((i, task)) = chosen else {
        found.notes.push("no task has seeds that are vertices: there are no labels and no splits".into());
        return Ok(());
    };
    found.n_classes = task.num_classes.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut labels = Scattered::new(folder, options.memory);
    for (part, file, sets) in task.parts() {
        let mut writer = Writer::create(&folder.join(file), Dtype::U32, None)?;
        found.files.push(file.into());
        for (k, set) in sets.iter().enumerate() {
            let fail = |problem: String| place.error(format!("tasks[{i}].{part}[{k}]: {problem}"));
            let name = set.r#type.as_deref().unwrap_or_default();
            let kind = typed.types.iter().position(|kind| kind.name == name);
            let kind = kind.ok_or_else(|| fail(format!("type {name:?} is none of graph.nodes")))?;
            let (start, n) = (starts[kind], typed.types[kind].n);
            let seeds = set.seeds().ok_or_else(|| fail("has no data named seeds".into()))?;
            let mut seeds = Table::open(&numpy(input, place, seeds.format, &seeds.path)?)?;
            if seeds.columns() != 1 {
                return Err(seeds.error("expected one column: vertices"));
            }
            let mut classes = None;
            if let Some(data) = set.named(&["labels"]) {
                let place = numpy(input, place, data.format, &data.path)?;
                let table = Table::open(&place)?;
                classes = Some((labels::column(&place, table.columns(), options)?, table));
            }
            while let Some(row) = seeds.next()? {
                let id = row[0];
                let vertex =
                    vertex(id, start, n).ok_or_else(|| seeds.error(out_of_range("vertex", id, n)))?;
                writer.write(&[vertex])?;
                if let Some((column, table)) = &mut classes {
                    let Some(label) = table.next()?.map(|row| labels::class(row[*column])) else {
                        return Err(
                            table.error(format!("is the last label, but there are more seeds in {part}"))
                        );
                    };
                    labels.push(vertex, label.map_err(|problem| table.error(problem))?)?;
                }
                if seeds.n_given() % (1 << 16) == 0 {
                    progress("reading sets", seeds.part())?;
                }
            }
            if let Some((_, table)) = &mut classes
                && table.next()?.is_some()
            {
                return Err(table.error(format!("there are no more seeds in {part}: expected a label each")));
            }
        }
        writer.finish()?;
    }
    let conflict = |vertex, [a, b]: [i32; 2]| {
        place.error(format!("tasks[{i}]: vertex {vertex} has the classes {a} and {b}: expected one"))
    };
    labels.write(folder, starts[starts.len() - 1], found, &conflict)
}

#[cfg(test)]
mod tests;
