//! The weight matrices of relations, whole or decomposed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Initializer, Input, ParameterId, Parameters, Pass};
use crate::block::Block;
use crate::device::{Device, Direction, Scalar};
use crate::error::{Error, Result};
use crate::pattern::Pattern;
use crate::tape::{SparseRows, Var};
use crate::tensor::Tensor;

/// How the matrices `W_r: [in_dim, out_dim]` of all relations are made of parameters (Schlichtkrull et al. 2018, §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decomposition {
    /// Each is a parameter of its own.
    #[default]
    Full,
    /// `W_r = Σ_b a_rb V_b` with this number of shared bases `V_b`.
    Basis(usize),
    /// `W_r` is block-diagonal with this number of blocks, which must divide both dimensions.
    BlockDiagonal(usize),
}

/// The parameters of all relations' matrices.
#[derive(Debug)]
pub struct RelationWeight {
    n_relations: usize,
    in_dim: usize,
    out_dim: usize,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Full { weight: ParameterId },
    Basis { coefficients: ParameterId, bases: ParameterId, n_bases: usize },
    BlockDiagonal { blocks: ParameterId, n_blocks: usize },
}

impl RelationWeight {
    /// Adds the parameters to `layer`, with `prefix` before their names. Depending on the decomposition, these are
    /// * `weight: [n_relations · in_dim, out_dim]`, one matrix below the other;
    /// * `coefficients: [n_relations, n_bases]` and `bases: [n_bases · in_dim, out_dim]`, one matrix below the other;
    /// * `blocks: [n_relations · in_dim, out_dim / n_blocks]`: the rows of the relations' matrices without their zeros.
    ///
    /// Errors: `n_relations` is 0, there are no bases, the number of blocks does not divide both dimensions, or the
    /// device is out of memory.
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        (layer, prefix): (usize, &str),
        n_relations: usize,
        [in_dim, out_dim]: [usize; 2],
        decomposition: Decomposition,
    ) -> Result<Self> {
        if n_relations == 0 {
            return Err(Error::invalid("n_relations", 0, "at least 1: a graph with edge types"));
        }
        // Glorot's bound for one relation's matrix: the parameter has the rows of all of them.
        let glorot = |fan_in: usize, fan_out: usize| Initializer::Bounded {
            bound: (6.0 / (fan_in + fan_out).max(1) as f64).sqrt(),
        };
        let mut add = |name: &str, shape: [usize; 2], initializer| {
            parameters.add(device, layer, &format!("{prefix}{name}"), shape, initializer)
        };
        let form = match decomposition {
            Decomposition::Full => {
                let shape = [n_relations * in_dim, out_dim];
                Form::Full { weight: add("weight", shape, glorot(in_dim, out_dim))? }
            }
            Decomposition::Basis(n_bases) => {
                if n_bases == 0 {
                    return Err(Error::invalid("bases", 0, "at least 1"));
                }
                let shape = [n_relations, n_bases];
                let coefficients = add("coefficients", shape, Initializer::Glorot)?;
                let shape = [n_bases * in_dim, out_dim];
                let bases = add("bases", shape, glorot(in_dim, out_dim))?;
                Form::Basis { coefficients, bases, n_bases }
            }
            Decomposition::BlockDiagonal(n_blocks) => {
                if n_blocks == 0 || in_dim % n_blocks != 0 || out_dim % n_blocks != 0 {
                    let expected = format!("a divisor of both {in_dim} and {out_dim}");
                    return Err(Error::invalid("blocks", n_blocks, expected));
                }
                let shape = [n_relations * in_dim, out_dim / n_blocks];
                let initializer = glorot(in_dim / n_blocks, out_dim / n_blocks);
                let blocks = add("blocks", shape, initializer)?;
                Form::BlockDiagonal { blocks, n_blocks }
            }
        };
        Ok(RelationWeight { n_relations, in_dim, out_dim, form })
    }

    /// Number of relations.
    pub fn n_relations(&self) -> usize {
        self.n_relations
    }

    /// `[n_relations · in_dim, out_dim]` on the tape: one matrix below the other.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn on<D: Device>(&self, pass: &Pass<'_, D>) -> Result<Var> {
        let tape = pass.tape;
        let rows = self.n_relations * self.in_dim;
        match self.form {
            Form::Full { weight } => Ok(pass.parameter(weight)),
            Form::Basis { coefficients, bases, n_bases } => {
                let (coefficients, bases) = (pass.parameter(coefficients), pass.parameter(bases));
                let flat = tape.reshape(bases, n_bases, self.in_dim * self.out_dim)?;
                tape.reshape(tape.linear(&[(coefficients, flat)], None, None)?, rows, self.out_dim)
            }
            Form::BlockDiagonal { blocks, n_blocks } => {
                let placed = place_blocks(tape.device(), rows, self.in_dim, n_blocks)?;
                tape.reshape(tape.sparse_linear(&placed, pass.parameter(blocks))?, rows, self.out_dim)
            }
        }
    }

    /// The rows of the matrices at the vertices' ids: one for every relation and source ([`Direction::Backward`]) or
    /// destination ([`Direction::Forward`]) of the block's edges, `[n_group, out_dim]`.
    fn rows_on<D: Device>(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        direction: Direction,
    ) -> Result<Var> {
        let tape = pass.tape;
        match self.form {
            Form::Basis { coefficients, bases, .. } => {
                let (coefficients, bases) = (pass.parameter(coefficients), pass.parameter(bases));
                tape.relation_basis_rows(block, direction, coefficients, bases)
            }
            Form::Full { .. } | Form::BlockDiagonal { .. } => {
                tape.relation_rows(block, self.n_relations, direction, self.on(pass)?)
            }
        }
    }

    /// The sum over relations of the mean of `x_s · W_r` over a destination's in-edges of that relation, for one-hot
    /// ids of the block's sources: `[n_dst, out_dim]`. For dense rows, see
    /// [`Tape::relation_aggregate`](crate::tape::Tape::relation_aggregate).
    ///
    /// Errors: `x` is not one-hot ids, the block has no edge types or one that is not below the number of relations, or
    /// a source's id is not below `in_dim`.
    pub fn aggregate_ids<D: Device>(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
    ) -> Result<Var> {
        let (tape, n_relations) = (pass.tape, self.n_relations);
        match (x, &self.form) {
            (Input::OneHot(_), Form::Basis { .. }) => {
                let rows = self.rows_on(pass, block, Direction::Backward)?;
                tape.relation_attend(block, n_relations, rows, mean_factors(pass, block, n_relations)?)
            }
            (Input::OneHot(_), _) => tape.relation_lookup(block, n_relations, self.on(pass)?),
            (Input::Dense(_), _) => Err(Error::invalid("input", "dense features", "one-hot ids")),
            (Input::Sparse(_) | Input::Aggregated(..) | Input::Sliced(_), _) => Err(needs_dense()),
        }
    }

    /// `x · W_r` for every relation and source ([`Direction::Backward`]) or destination ([`Direction::Forward`]) of the
    /// block's edges, in the order of its groups: `[n_group, out_dim]`. `x` has a row for each source of the block.
    ///
    /// Errors: `x` is sparse or aggregated, the block has no edge types or one that is not below the number of
    /// relations, dense rows do not have `in_dim` columns, or a source's id is not below `in_dim` for one-hot rows.
    pub fn transform<D: Device>(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        direction: Direction,
        x: &Input<D>,
    ) -> Result<Var> {
        match x {
            Input::Dense(x) => {
                pass.tape.relation_transform(block, self.n_relations, direction, *x, self.on(pass)?)
            }
            Input::OneHot(_) => self.rows_on(pass, block, direction),
            Input::Sparse(_) | Input::Aggregated(..) | Input::Sliced(_) => Err(needs_dense()),
        }
    }

    /// Adds the parameters of a destination's own matrix `W_root`. If there are bases and `shares_bases` is set, it is
    /// a combination of the same bases with `root_coefficients: [1, n_bases]`; otherwise it is a parameter of its own,
    /// `root: [in_dim, out_dim]`.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn add_root<D: Device>(
        &self,
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        shares_bases: bool,
    ) -> Result<Root> {
        match self.form {
            Form::Basis { bases, n_bases, .. } if shares_bases => {
                let shape = [1, n_bases];
                let name = "root_coefficients";
                // The same bound as for the relations' coefficients.
                let bound = (6.0 / (self.n_relations + shape[1]).max(1) as f64).sqrt();
                let initializer = Initializer::Bounded { bound };
                Ok(Root::Basis(parameters.add(device, layer, name, shape, initializer)?, bases))
            }
            _ => {
                let shape = [self.in_dim, self.out_dim];
                Ok(Root::Whole(parameters.add(device, layer, "root", shape, Initializer::Glorot)?))
            }
        }
    }
}

/// A destination's own weight matrix.
#[derive(Clone, Copy, Debug)]
pub enum Root {
    /// A parameter.
    Whole(ParameterId),
    /// A combination of bases: coefficients, bases.
    Basis(ParameterId, ParameterId),
}

impl Root {
    /// `x_t · W_root` for the block's destinations: `[n_dst, out_dim]`.
    ///
    /// Errors: `x` is aggregated, its shape does not fit, or an id is not below `in_dim` for one-hot rows.
    pub fn project<D: Device>(self, pass: &Pass<'_, D>, block: &Arc<Block<D>>, x: &Input<D>) -> Result<Var> {
        match (self, x) {
            (Root::Basis(coefficients, bases), Input::OneHot(_)) => {
                pass.tape.basis_rows(block, pass.parameter(coefficients), pass.parameter(bases))
            }
            _ => x.project(pass, block.n_dst(), self.on(pass)?, None, None),
        }
    }

    /// `W_root: [in_dim, out_dim]` on the tape.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn on<D: Device>(self, pass: &Pass<'_, D>) -> Result<Var> {
        let tape = pass.tape;
        let (coefficients, bases) = match self {
            Root::Whole(root) => return Ok(pass.parameter(root)),
            Root::Basis(coefficients, bases) => (pass.parameter(coefficients), pass.parameter(bases)),
        };
        let ([_, n_bases], [rows, out_dim]) = (tape.shape(coefficients), tape.shape(bases));
        let in_dim = rows / n_bases;
        let flat = tape.reshape(bases, n_bases, in_dim * out_dim)?;
        tape.reshape(tape.linear(&[(coefficients, flat)], None, None)?, in_dim, out_dim)
    }
}

/// `[n_edge, 1]`: each edge's factor in the mean over its destination's edges of its relation, as a constant.
fn mean_factors<D: Device>(pass: &Pass<'_, D>, block: &Arc<Block<D>>, n_relations: usize) -> Result<Var> {
    let device = pass.tape.device();
    let edges = block.relations(device, n_relations)?;
    let mut factors = Tensor::allocate(device, edges.n_edge(), 1)?;
    device.copy(D::view(&edges.weight), factors.make_mut(device)?.data)?;
    Ok(pass.tape.constant(factors))
}

/// The error of relational layers over sparse rows.
fn needs_dense() -> Error {
    Error::invalid("input", "sparse features", "dense ones: give the model an input embedding")
}

/// The matrix of zeros and ones that puts each row of a block at its place in a row of the whole matrix: of that row's
/// `n_blocks` parts, one is the block's row and the others are 0.
fn place_blocks<D: Device>(device: &D, rows: usize, in_dim: usize, n_blocks: usize) -> Result<SparseRows<D>> {
    let mut indptr = vec![0u32];
    for row in 0..rows {
        let block = row % in_dim * n_blocks / in_dim;
        indptr.extend((0..n_blocks).map(|part| row as u32 + u32::from(part >= block)));
    }
    let indices: Vec<u32> = (0..rows as u32).collect();
    let pattern = Pattern::from_host(device, rows, &indptr, &indices)?;
    let ones = device.upload(&vec![D::Scalar::from_f64(1.0); rows])?;
    SparseRows::new(pattern, ones, device.upload(&indices)?)
}
