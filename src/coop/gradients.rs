//! Sums of gradients over processing elements, so that every PE takes the same optimiser step.

use super::Peers;
use crate::comm::Stage;
use crate::device::Device;
use crate::error::Result;
use crate::tape::{Gradient, Gradients, RowGradient};
use crate::tensor::Tensor;

/// Each parameter's gradient, added up over all PEs in rank order: the same bits everywhere. Collective; all PEs have
/// gradients of the same parameters.
///
/// All dense gradients are sent as one vector. Of a row-sparse gradient only its rows are sent, with their numbers.
///
/// Errors: those of communication and of the device.
pub fn sum_gradients<D: Device>(
    device: &D,
    peers: &Peers<D>,
    gradients: &Gradients<D>,
) -> Result<Gradients<D>> {
    let gradients = gradients.parameters();
    let mut total = 0;
    for &(_, gradient) in &gradients {
        if let Gradient::Dense(x) = gradient {
            total += x.rows() * x.cols();
        }
    }
    let mut all = Tensor::allocate(device, 1, total)?;
    let mut start = 0;
    for &(_, gradient) in &gradients {
        if let Gradient::Dense(x) = gradient {
            let end = start + x.rows() * x.cols();
            device.copy(x.view(), D::slice_mut(all.make_mut(device)?.data, start..end))?;
            start = end;
        }
    }
    let all = peers.all_reduce(device, Stage::Parameter, &all)?;
    let mut start = 0;
    let mut sums = Vec::new();
    for (id, gradient) in gradients {
        let sum = match gradient {
            Gradient::Dense(x) => {
                let end = start + x.rows() * x.cols();
                let mut sum = Tensor::allocate(device, x.rows(), x.cols())?;
                device.copy(D::slice(all.view(), start..end), sum.make_mut(device)?.data)?;
                start = end;
                Gradient::Dense(sum)
            }
            Gradient::Rows(rows) => Gradient::Rows(sum_rows(device, peers, rows)?),
        };
        sums.push((id, sum));
    }
    Ok(Gradients::of_parameters(sums))
}

/// The sum of row-sparse gradients over PEs; rows that several PEs have are added in rank order.
fn sum_rows<D: Device>(device: &D, peers: &Peers<D>, rows: &RowGradient<D>) -> Result<RowGradient<D>> {
    let communicator = peers.communicator();
    let (index, _) = communicator.all_gather_v(Stage::Parameter, &device.download(rows.index())?)?;
    let (values, _) = communicator.all_gather_v(Stage::Parameter, &rows.values().to_vec(device)?)?;
    let [n_rows, cols] = rows.shape();
    let values = Tensor::from_slice(device, index.len(), cols, &values)?;
    RowGradient::new(device, n_rows, &index, values)
}
