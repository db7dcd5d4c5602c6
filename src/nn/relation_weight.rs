//! The weight matrices of relations, whole or decomposed.

use serde::{Deserialize, Serialize};

use super::{Initializer, ParameterId, Parameters, Pass};
use crate::device::{Device, Scalar};
use crate::error::{Error, Result};
use crate::pattern::Pattern;
use crate::tape::{SparseRows, Var};

/// How the matrices `W_r: [in_dim, out_dim]` of all relations are made of parameters (Schlichtkrull et al. 2018, §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decomposition {
    /// Each is a parameter.
    #[default]
    Full,
    /// `W_r = Σ_b a_rb V_b` with so many shared bases `V_b`.
    Basis(usize),
    /// `W_r` is block-diagonal with so many blocks, which must divide both dimensions.
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
    Basis { coefficients: ParameterId, bases: ParameterId },
    BlockDiagonal { blocks: ParameterId, n_blocks: usize },
}

impl RelationWeight {
    /// Adds the parameters to `layer`, their names after a prefix; one of
    /// * `weight: [n_relations · in_dim, out_dim]`, one matrix below the other;
    /// * `coefficients: [n_relations, n_bases]` and `bases: [n_bases, in_dim · out_dim]`, a matrix a row;
    /// * `blocks: [n_relations · in_dim, out_dim / n_blocks]`: row `i` of a relation's matrix, but for its zeros.
    ///
    /// Errors: no relations, no bases, a number of blocks that does not divide both dimensions.
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
        // Of one relation's matrix, which the parameter holds many of.
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
                let shape = [n_bases, in_dim * out_dim];
                let bases = add("bases", shape, glorot(in_dim, out_dim))?;
                Form::Basis { coefficients, bases }
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
    pub fn on<D: Device>(&self, pass: &Pass<'_, D>) -> Result<Var> {
        let tape = pass.tape;
        let rows = self.n_relations * self.in_dim;
        match self.form {
            Form::Full { weight } => Ok(pass.parameter(weight)),
            Form::Basis { coefficients, bases } => {
                let terms = [(pass.parameter(coefficients), pass.parameter(bases))];
                tape.reshape(tape.linear(&terms, None, None)?, rows, self.out_dim)
            }
            Form::BlockDiagonal { blocks, n_blocks } => {
                let placed = place_blocks(tape.device(), rows, self.in_dim, n_blocks)?;
                tape.reshape(tape.sparse_linear(&placed, pass.parameter(blocks))?, rows, self.out_dim)
            }
        }
    }
}

/// The zero-one matrix that puts each row of a block where it stands in its matrix: a row of the matrix is `n_blocks`
/// parts, of which one is the block's row and the others are 0.
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
