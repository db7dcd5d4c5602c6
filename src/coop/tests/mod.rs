//! Cooperation changes the cost, not the result: samples, losses and gradients against those of one processing element.

mod exchange;
mod sampling;
