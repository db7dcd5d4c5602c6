//! Predictions layer by layer over full neighbourhoods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::pace::Pace;
use super::pipeline::{computing, prepared_ahead};
use crate::batch::{BatchInput, Slicer};
use crate::block::Block;
use crate::coop::Group;
use crate::device::Device;
use crate::error::{Error, Result, check_ids, try_filled};
use crate::graph::Graph;
use crate::nn::{Input, Model};
use crate::tape::{Tape, Var};
use crate::tensor::Tensor;

/// Logits of `vertices` (repeats allowed), `[vertices.len(), n_classes]`, layer by layer over full neighbourhoods: each
/// vertex whose output of a layer the next one needs is computed once, in chunks of `chunk` destinations. Holds two
/// layers' activations on the device; for a model with a head, those of all layers.
///
/// Errors: `chunk` is 0, `model` has no [`Model::layer_by_layer`], a vertex is out of range, and those of the layers
/// and the device.
pub fn infer_full<D: Device>(
    device: &D,
    model: &dyn Model<D>,
    slicer: &Slicer<D::Scalar>,
    vertices: &[u32],
    chunk: usize,
    workers: usize,
) -> Result<Vec<D::Scalar>> {
    let Some((logits, rows)) = full_logits(device, model, slicer, vertices, chunk, workers)? else {
        return Ok(Vec::new());
    };
    let (values, cols) = (logits.to_vec(device)?, logits.cols());
    Ok(rows.iter().flat_map(|&row| values[row as usize * cols..][..cols].iter().copied()).collect())
}

/// [`infer_full`] without reading anything back: logits on the device, and the row of each of `vertices`. `None`: there
/// are no vertices.
///
/// Errors: those of [`infer_full`].
pub(super) fn full_logits<D: Device>(
    device: &D,
    model: &dyn Model<D>,
    slicer: &Slicer<D::Scalar>,
    vertices: &[u32],
    chunk: usize,
    workers: usize,
) -> Result<Option<(Tensor<D>, Vec<u32>)>> {
    if chunk == 0 {
        return Err(Error::invalid("chunk", 0, "at least 1"));
    }
    let n_layers = model.n_layers();
    let Some(model) = model.layer_by_layer() else {
        return Err(Error::invalid("model", "not layer by layer", "one with `Model::layer_by_layer`"));
    };
    let needed = Needed::by_layer(&slicer.dataset().graph, vertices, n_layers)?;
    let chunks = Chunks { device, chunk, workers };
    // Workers also start the copies to the device, while it computes.
    let uploads = device.beside()?;
    // Activations: only the last layer's, unless a head needs those of all layers.
    let mut outputs: Vec<Tensor<D>> = Vec::new();
    for layer in 0..n_layers {
        let (slicer, dst, uploads) = (slicer.clone(), needed[layer].clone(), uploads.clone());
        let below = layer.checked_sub(1).map(|below| needed[below].clone());
        let work = move |i: usize| {
            let host = slicer.full_block(dst.chunk(i, chunk))?;
            let input = match &below {
                Some(below) => Below::Outputs(uploads.send(below.rows_of(host.src()))?),
                None => Below::Features(slicer.input(&host)?.to_device(&uploads)?),
            };
            let block = Block::from_host(&uploads, host)?;
            if let Some(needs) = slicer.needs().relations {
                block.group_relations(&uploads, needs)?;
            }
            Ok(((Arc::new(block), input), uploads.record()?))
        };
        let out = chunks.compute(needed[layer].len(), work, |tape, (block, input)| {
            let input = match (input, outputs.last()) {
                (Below::Features(rows), _) => Input::new(tape, &rows)?,
                (Below::Outputs(rows), Some(h)) => Input::Dense(gather(tape, h, &rows)?),
                (Below::Outputs(_), None) => {
                    Input::Dense(tape.constant(Tensor::zeros(device, block.n_src(), 0)?))
                }
            };
            model.forward_layer(tape, layer, &block, &input)
        })?;
        if !model.has_head() {
            outputs.clear();
        }
        outputs.extend(out);
    }
    let Some(asked) = needed.last() else { return Ok(None) };
    if model.has_head() && !outputs.is_empty() {
        let (slicer, asked, needed, uploads) =
            (slicer.clone(), asked.clone(), needed.clone(), uploads.clone());
        let n = asked.len();
        let work = move |i: usize| {
            let vertices = asked.chunk(i, chunk);
            let rows = needed.iter().map(|layer| uploads.send(layer.rows_of(vertices)));
            let rows = rows.collect::<Result<Vec<D::Buffer<u32>>>>()?;
            Ok(((slicer.rows(vertices)?.to_device(&uploads)?, rows), uploads.record()?))
        };
        let logits = chunks.compute(n, work, |tape, (features, rows)| {
            let n_rows = rows.first().map_or(0, D::len);
            let mut stages = vec![Input::new(tape, &features)?];
            for (h, rows) in outputs.iter().zip(&rows) {
                stages.push(Input::Dense(gather(tape, h, rows)?));
            }
            model.forward_head(tape, n_rows, &stages)
        })?;
        outputs.extend(logits);
    }
    let rows = asked.rows_of(vertices);
    Ok(outputs.pop().map(|logits| (logits, rows)))
}

/// What a layer's chunk is made of.
enum Below<D: Device> {
    Features(BatchInput<D>),
    /// The sources' rows of the output of the layer below.
    Outputs(D::Buffer<u32>),
}

/// The vertices whose output of a layer is needed, ascending. Cloning shares them.
#[derive(Clone, Debug)]
struct Needed {
    ids: Arc<Vec<u32>>,
    /// `[n_vertices]`: the position of each vertex that is needed.
    row_of: Arc<Vec<u32>>,
}

impl Needed {
    /// For each layer, what it has to compute so that the last one knows `vertices`: these, and below each layer its
    /// own vertices and their in-neighbours. O(n_vertices + in-edges) for each layer.
    ///
    /// Errors: a vertex is out of range, or there is no memory.
    fn by_layer(graph: &Graph, vertices: &[u32], n_layers: usize) -> Result<Vec<Self>> {
        let n_vertices = graph.n_vertices();
        check_ids("vertices", vertices, n_vertices)?;
        let marked: Vec<AtomicBool> = (0..n_vertices).map(|_| AtomicBool::new(false)).collect();
        let mark = |vertices: &[u32]| {
            for &v in vertices {
                marked[v as usize].store(true, Ordering::Relaxed);
            }
        };
        mark(vertices);
        let mut layers = vec![Needed::of(&marked)?];
        for _ in 1..n_layers {
            let above = &layers[layers.len() - 1];
            if above.len() == n_vertices {
                layers.push(above.clone());
                continue;
            }
            above.ids.par_iter().for_each(|&v| mark(graph.in_neighbors(v)));
            layers.push(Needed::of(&marked)?);
        }
        layers.reverse();
        Ok(layers)
    }

    fn of(marked: &[AtomicBool]) -> Result<Self> {
        let mut row_of = try_filled("the rows of vertices", 0u32, marked.len(), "one number per vertex")?;
        let mut ids = Vec::new();
        for (v, row) in row_of.iter_mut().enumerate() {
            if marked[v].load(Ordering::Relaxed) {
                *row = ids.len() as u32;
                ids.push(v as u32);
            }
        }
        Ok(Needed { ids: Arc::new(ids), row_of: Arc::new(row_of) })
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    /// The `i`-th part of at most `chunk` vertices.
    fn chunk(&self, i: usize, chunk: usize) -> &[u32] {
        &self.ids[i * chunk..(i * chunk + chunk).min(self.ids.len())]
    }

    fn rows_of(&self, vertices: &[u32]) -> Vec<u32> {
        vertices.iter().map(|&v| self.row_of[v as usize]).collect()
    }
}

/// How rows are computed: chunk by chunk of at most `chunk` of them.
struct Chunks<'a, D> {
    device: &'a D,
    chunk: usize,
    workers: usize,
}

impl<D: Device> Chunks<'_, D> {
    /// `[n, cols]`: the rows that `compute` makes of what `work` has prepared for each chunk, after the event. `None`
    /// if `n` is 0.
    fn compute<T: Send + 'static>(
        &self,
        n: usize,
        work: impl Fn(usize) -> Result<(T, D::Event)> + Send + Sync + 'static,
        compute: impl Fn(&Tape<D>, T) -> Result<Var> + Sync,
    ) -> Result<Option<Tensor<D>>> {
        let device = self.device;
        let mut out: Option<Tensor<D>> = None;
        let (mut filled, mut pace) = (0, Pace::new());
        for item in prepared_ahead::<D, _>(self.workers, n.div_ceil(self.chunk), work)? {
            let (item, ready) = item?;
            device.wait_for(&ready)?;
            let h = computing(&Group::<D>::alone(), || {
                let tape = Tape::inference(device);
                compute(&tape, item).map(|h| tape.value(h))
            })?;
            let all = match &mut out {
                Some(all) => all,
                None => out.insert(Tensor::allocate(device, n, h.cols())?),
            };
            let end = filled + h.rows() * h.cols();
            device.copy(h.view(), D::slice_mut(all.make_mut(device)?.data, filled..end))?;
            filled = end;
            pace.keep(device)?;
        }
        Ok(out)
    }
}

/// Rows of `h`.
fn gather<D: Device>(tape: &Tape<D>, h: &Tensor<D>, rows: &D::Buffer<u32>) -> Result<Var> {
    let device = tape.device();
    let mut out = Tensor::allocate(device, D::len(rows), h.cols())?;
    device.gather(h.view(), h.rows(), D::view(rows), out.make_mut(device)?)?;
    Ok(tape.constant(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_computes_what_the_next_one_needs() {
        // 0 -> 1 -> 2 -> 3, 4 -> 3, and 5 alone.
        let graph = Graph::from_edges(6, &[(0, 1), (1, 2), (2, 3), (4, 3)]).unwrap();
        let needed = |vertices: &[u32], n_layers| -> Vec<Vec<u32>> {
            let layers = Needed::by_layer(&graph, vertices, n_layers).unwrap();
            layers.iter().map(|layer| layer.ids.to_vec()).collect()
        };
        assert_eq!(needed(&[3, 3], 3), [vec![1, 2, 3, 4], vec![2, 3, 4], vec![3]]);
        assert_eq!(needed(&[5, 1], 2), [vec![0, 1, 5], vec![1, 5]]);
        assert_eq!(needed(&[], 2), [vec![], Vec::<u32>::new()]);
        assert_eq!(needed(&[0, 1, 2, 3, 4, 5], 2)[0].len(), 6);
        let layers = Needed::by_layer(&graph, &[3], 2).unwrap();
        assert_eq!(layers[0].rows_of(&[4, 2, 3]), [2, 0, 1]);
        assert!(matches!(Needed::by_layer(&graph, &[6], 1), Err(Error::IndexOutOfRange { value: 6, .. })));
    }
}
