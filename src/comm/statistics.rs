//! What a PE sent, and how long it took.

use std::time::Duration;

use crate::comm::Stage;

/// What one PE sent to others in one stage.
///
/// A reduction counts as a scatter of shares to the PEs that add them up, and a gather of the sums; a broadcast counts
/// at its root, once per other PE. How the transport really does it makes no difference. What PEs exchange to check
/// each other's calls is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageStatistics {
    /// Messages to other PEs that are not empty.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Time spent in collectives, including the wait for slower PEs.
    pub seconds: f64,
}

/// What one PE sent to others by a communicator and its duplicates, by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    stages: [StageStatistics; Stage::ALL.len()],
}

impl Statistics {
    /// Those of `stage`.
    pub fn stage(&self, stage: Stage) -> StageStatistics {
        self.stages[stage as usize]
    }

    /// The sum over all stages.
    pub fn total(&self) -> StageStatistics {
        self.stages.iter().fold(StageStatistics::default(), |sum, stage| StageStatistics {
            messages: sum.messages + stage.messages,
            bytes: sum.bytes + stage.bytes,
            seconds: sum.seconds + stage.seconds,
        })
    }

    pub(super) fn record(&mut self, stage: Stage, traffic: Traffic, elapsed: Duration) {
        let stage = &mut self.stages[stage as usize];
        stage.messages += traffic.messages;
        stage.bytes += traffic.bytes;
        stage.seconds += elapsed.as_secs_f64();
    }
}

/// What one collective sends to other PEs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    messages: u64,
    bytes: u64,
}

impl Traffic {
    /// The traffic of one message per count that is not 0, in elements.
    pub(super) fn of_counts(counts: impl Iterator<Item = usize>, element_bytes: usize) -> Self {
        counts.filter(|&count| count > 0).fold(Traffic::default(), |sum, count| Traffic {
            messages: sum.messages + 1,
            bytes: sum.bytes + (count * element_bytes) as u64,
        })
    }
}
