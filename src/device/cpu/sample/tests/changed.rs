//! Graphs whose files somebody changes while they are mapped: an error, or a block of vertices; never a panic.

use std::io::{Seek, SeekFrom, Write};

use super::*;
use crate::array::Array;

/// A mapped graph, and its files, to be changed.
struct Mapped {
    graph: Arc<Graph>,
    folder: tempfile::TempDir,
}

impl Mapped {
    fn new(graph: &Graph) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("indptr"), bytemuck::cast_slice(graph.indptr())).unwrap();
        std::fs::write(path("indices"), bytemuck::cast_slice(graph.indices())).unwrap();
        let indptr: Array<u64> = Array::map(&path("indptr"), 0, graph.indptr().len()).unwrap();
        let indices: Array<u32> = Array::map(&path("indices"), 0, graph.indices().len()).unwrap();
        let mapped = Graph::from_csr(indptr, indices).unwrap();
        let mapped = mapped.with_edge_weights(graph.edge_weight().unwrap().to_vec()).unwrap();
        let mapped = mapped.with_edge_types(graph.edge_type().unwrap().to_vec(), 3).unwrap();
        Mapped { graph: Arc::new(mapped), folder }
    }

    fn overwrite(&self, file: &str, position: usize, bytes: &[u8]) {
        let mut file = std::fs::File::options().write(true).open(self.folder.path().join(file)).unwrap();
        file.seek(SeekFrom::Start((position * bytes.len()) as u64)).unwrap();
        file.write_all(bytes).unwrap();
    }
}

/// What each method gives by both tables, for whole rows and for small samples.
fn sampled(graph: &Arc<Graph>, mut each: impl FnMut(Method, usize, Result<NaiveBlock>)) {
    let dst: Vec<u32> = (0..graph.n_vertices() as u32).collect();
    for (method, _) in methods() {
        for fanout in [2, 1_000_000] {
            if fanout > 2 && matches!(method, Method::Neighbor { replace: true, .. }) {
                continue;
            }
            for per_relation in [false, true] {
                if per_relation && method != NEIGHBOR {
                    continue;
                }
                let spec = SampleSpec { per_relation, ..spec(method, fanout) };
                for by_table in [false, true] {
                    let (graph, variates) = (graph.in_edges(), &batch(3));
                    let job = Job {
                        graph,
                        dst: &dst,
                        spec: &spec,
                        variates,
                        layer: 0,
                        walked: None,
                        numbers: None,
                    };
                    each(method, fanout, fast_by(by_table, &job));
                }
            }
        }
    }
}

#[test]
fn sources_that_are_no_vertices_any_more_are_errors() {
    let mapped = Mapped::new(&skewed(300, 12, 3));
    sampled(&mapped.graph, |method, fanout, block| assert!(block.is_ok(), "{method:?} {fanout}"));
    for source in [300u32, u32::MAX] {
        for position in 0..mapped.graph.indices().len() {
            mapped.overwrite("indices", position, &source.to_le_bytes());
        }
        let mut errors = 0;
        sampled(&mapped.graph, |method, fanout, block| match block {
            // Weights of 0 keep no edge; other methods with a large fanout keep all.
            Ok(block) => {
                assert!(fanout == 2, "{method:?}");
                assert!(block.src.iter().all(|&vertex| vertex < 300), "{method:?}");
            }
            Err(error) => {
                errors += 1;
                let text = error.to_string();
                assert!(text.starts_with(&format!("indices[0] = {source} is out of range")), "{text}");
            }
        });
        assert!(errors > 20, "{errors}");
    }
}

#[test]
fn rows_that_are_no_ranges_any_more_are_errors() {
    let graph = skewed(300, 12, 3);
    let mapped = Mapped::new(&graph);
    let row = (0..300).find(|&v| graph.in_degree(v) > 5 && graph.indptr()[v as usize] > 0).unwrap();
    let (at, first) = (row as usize + 1, graph.indptr()[row as usize]);
    for (value, message) in [
        (first - 1, format!("indptr[{at}] = {} is below the entry before it ({first})", first - 1)),
        (graph.n_edges() + 1, format!("indptr[{at}] = {} is out of range", graph.n_edges() + 1)),
        (u64::MAX, format!("indptr[{at}] = {} is out of range", i64::MAX)),
    ] {
        mapped.overwrite("indptr", at, &value.to_le_bytes());
        sampled(&mapped.graph, |method, fanout, block| {
            let text = block.map(|_| ()).unwrap_err().to_string();
            assert!(text.starts_with(&message), "{method:?} {fanout}: {text}");
        });
        assert!(mapped.graph.in_degree(row) < u64::MAX);
    }
}
