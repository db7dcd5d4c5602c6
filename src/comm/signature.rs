//! What PEs compare before they exchange anything: otherwise a difference would make them hang, or mix up data.

use std::fmt;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    AllToAll,
    SumF32,
    SumF64,
    SumU64,
    MaxF64,
    Broadcast,
    Barrier,
    Duplicate,
    /// Only threads call it.
    Window,
    /// No more collectives follow. Threads notice this without a call.
    Leave,
}

#[cfg(feature = "mpi")]
impl Kind {
    const ALL: [Kind; 10] = [
        Kind::AllToAll,
        Kind::SumF32,
        Kind::SumF64,
        Kind::SumU64,
        Kind::MaxF64,
        Kind::Broadcast,
        Kind::Barrier,
        Kind::Duplicate,
        Kind::Window,
        Kind::Leave,
    ];
}

/// One PE's call of a collective. All PEs' calls must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) kind: Kind,
    /// Elements, or bytes of a broadcast; 0 where lengths differ between PEs.
    pub(super) len: u64,
    /// The root of a broadcast, else 0.
    pub(super) root: u64,
}

impl Call {
    pub(super) fn new(kind: Kind) -> Self {
        Call { kind, len: 0, root: 0 }
    }

    pub(super) fn reduce(kind: Kind, len: usize) -> Self {
        Call { kind, len: len as u64, root: 0 }
    }

    pub(super) fn broadcast(root: usize, len: usize) -> Self {
        Call { kind: Kind::Broadcast, len: len as u64, root: root as u64 }
    }
}

#[cfg(feature = "mpi")]
impl Call {
    /// The form in which it is sent.
    pub(super) fn to_words(self) -> [u64; 3] {
        [self.kind as u64, self.len, self.root]
    }

    /// `None` if the sender knows other collectives.
    pub(super) fn from_words([kind, len, root]: [u64; 3]) -> Option<Self> {
        let kind = *Kind::ALL.get(usize::try_from(kind).ok()?)?;
        Some(Call { kind, len, root })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { kind, len, root } = self;
        match kind {
            Kind::AllToAll => write!(f, "called all_to_all_v"),
            Kind::SumF32 => write!(f, "called all_reduce_sum of {len} f32"),
            Kind::SumF64 => write!(f, "called all_reduce_sum of {len} f64"),
            Kind::SumU64 => write!(f, "called all_reduce_sum of {len} u64"),
            Kind::MaxF64 => write!(f, "called all_reduce_max of {len} f64"),
            Kind::Broadcast => write!(f, "called broadcast of {len} bytes from {root}"),
            Kind::Barrier => write!(f, "called barrier"),
            Kind::Duplicate => write!(f, "called duplicate"),
            Kind::Window => write!(f, "called window"),
            Kind::Leave => write!(f, "returned"),
        }
    }
}

/// The PE whose call is not like the others', and what it did, if there is one. `sequence` counts collectives.
///
/// The majority is right; of two PEs, the first.
pub(super) fn odd_one(calls: &[Call], sequence: u64) -> Option<(usize, String)> {
    let followers = |call: &Call| calls.iter().filter(|other| *other == call).count();
    // `max_by_key` takes the last of equals.
    let right = (0..calls.len()).rev().max_by_key(|&rank| followers(&calls[rank]))?;
    let is_odd = |rank: &usize| calls[*rank] != calls[right];
    let mut odd = (0..calls.len()).find(is_odd)?;
    let mut witness = right;
    // PEs that have left are to blame, however many they are.
    if let Some(left) = calls.iter().position(|call| call.kind == Kind::Leave) {
        odd = left;
        witness = calls.iter().position(|call| call.kind != Kind::Leave).unwrap_or(right);
    }
    let (does, did) = (calls[odd], calls[witness]);
    Some((odd, format!("in collective {sequence} it {does}, while processing element {witness} {did}")))
}

/// A difference between what a PE receives and what it expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) sender: usize,
    /// In bytes.
    pub(super) sent: u64,
    /// In bytes.
    pub(super) expected: u64,
}

impl Mismatch {
    /// The first difference between what each PE sends and what is expected from it, in bytes.
    pub(super) fn find(sent: impl Iterator<Item = u64>, expected: &[usize]) -> Option<Self> {
        let pairs = sent.zip(expected.iter().map(|&bytes| bytes as u64)).enumerate();
        pairs
            .filter(|(_, (sent, expected))| sent != expected)
            .map(|(sender, (sent, expected))| Mismatch { sender, sent, expected })
            .next()
    }
}

/// The PE that is in most [`Mismatch`]es, as receiver or sender, and one of these in words; `None` if there are none.
/// `reports[q]` is what PE `q` found.
pub(super) fn blame(reports: &[Option<Mismatch>], sequence: u64) -> Option<(usize, String)> {
    let mut votes = vec![0u32; reports.len()];
    for (receiver, report) in reports.iter().enumerate() {
        if let Some(mismatch) = report {
            votes[receiver] += 1;
            if let Some(votes) = votes.get_mut(mismatch.sender) {
                *votes += 1;
            }
        }
    }
    let culprit = (0..votes.len()).rev().max_by_key(|&rank| votes[rank]).filter(|&rank| votes[rank] > 0)?;
    let prefix = format!("in collective {sequence}, all_to_all_v, it");
    if let Some(Mismatch { sender, sent, expected }) = reports[culprit] {
        return Some((
            culprit,
            format!("{prefix} expects {expected} bytes from processing element {sender}, which sends {sent}"),
        ));
    }
    let found = |report: &Option<Mismatch>| report.is_some_and(|mismatch| mismatch.sender == culprit);
    let receiver = reports.iter().position(found)?;
    let Mismatch { sent, expected, .. } = reports[receiver]?;
    Some((
        culprit,
        format!("{prefix} sends {sent} bytes to processing element {receiver}, which expects {expected}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minority_is_odd() {
        let (a, b) = (Call::new(Kind::Barrier), Call::broadcast(1, 16));
        assert_eq!(odd_one(&[a, a, a], 0), None);
        assert_eq!(odd_one(&[b, a, a], 0).unwrap().0, 0);
        assert_eq!(odd_one(&[a, a, b], 0).unwrap().0, 2);
        let (rank, problem) = odd_one(&[a, b], 7).unwrap();
        assert_eq!(rank, 1);
        assert_eq!(
            problem,
            "in collective 7 it called broadcast of 16 bytes from 1, while processing element 0 called barrier"
        );
        for (x, y) in [(Call::broadcast(1, 16), Call::broadcast(0, 16)), (b, Call::broadcast(1, 8))] {
            assert!(odd_one(&[x, y], 0).is_some());
        }
        assert!(odd_one(&[Call::reduce(Kind::SumF32, 3), Call::reduce(Kind::SumU64, 3)], 0).is_some());
    }

    #[cfg(feature = "mpi")]
    #[test]
    fn words_are_read_as_written() {
        for kind in Kind::ALL {
            let call = Call { kind, len: u64::MAX, root: 3 };
            assert_eq!(Call::from_words(call.to_words()), Some(call));
        }
        assert_eq!(Call::from_words([9, 0, 0]), None);
    }

    #[test]
    fn who_takes_part_in_most_mismatches_is_to_blame() {
        let wrong = |sender| Some(Mismatch { sender, sent: 4, expected: 8 });
        assert_eq!(blame(&[None, None], 0), None);
        // PE 2 sends too little to two others.
        let (rank, problem) = blame(&[wrong(2), wrong(2), None], 3).unwrap();
        assert_eq!(rank, 2);
        assert!(problem.ends_with("it sends 4 bytes to processing element 0, which expects 8"), "{problem}");
        let (rank, problem) = blame(&[None, wrong(0)], 3).unwrap();
        assert_eq!(rank, 0);
        assert!(problem.ends_with("it sends 4 bytes to processing element 1, which expects 8"), "{problem}");
        // PE 0 also fails to hear from itself.
        let (rank, problem) = blame(&[wrong(0), None], 3).unwrap();
        assert_eq!(rank, 0);
        assert!(
            problem.ends_with("it expects 8 bytes from processing element 0, which sends 4"),
            "{problem}"
        );
        let first = Mismatch::find([1, 2, 3].into_iter(), &[1, 5, 6]);
        assert_eq!(first, Some(Mismatch { sender: 1, sent: 2, expected: 5 }));
    }
}
