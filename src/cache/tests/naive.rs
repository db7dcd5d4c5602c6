//! The policies as their publications put them, one step a line, on queues that are searched from end to end.

use std::collections::VecDeque;

use super::Policy;

/// Whether an access hits, and what is given up for it.
pub(super) type Outcome = (bool, Option<u32>);

pub(super) trait Naive {
    fn access(&mut self, id: u32) -> Outcome;
}

pub(super) fn naive(policy: Policy, capacity: usize) -> Box<dyn Naive> {
    match policy {
        Policy::Lru => Box::new(Lru { capacity, used: Vec::new() }),
        Policy::Clock => Box::new(Clock { capacity, queue: VecDeque::new() }),
        Policy::Sieve => Box::new(Sieve { capacity, queue: Vec::new(), hand: None }),
        Policy::S3Fifo => Box::new(S3Fifo {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
        }),
    }
}

/// In order of last use, the latest last.
struct Lru {
    capacity: usize,
    used: Vec<u32>,
}

impl Naive for Lru {
    fn access(&mut self, id: u32) -> Outcome {
        if let Some(position) = self.used.iter().position(|&other| other == id) {
            self.used.remove(position);
            self.used.push(id);
            return (true, None);
        }
        self.used.push(id);
        let evicted = (self.used.len() > self.capacity).then(|| self.used.remove(0));
        (false, evicted)
    }
}

/// Second chance as a queue: ids with their bit set go to its end. (The ring and its hand are the same thing.)
struct Clock {
    capacity: usize,
    queue: VecDeque<(u32, bool)>,
}

impl Naive for Clock {
    fn access(&mut self, id: u32) -> Outcome {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.0 == id) {
            entry.1 = true;
            return (true, None);
        }
        let mut evicted = None;
        while self.queue.len() == self.capacity {
            let (oldest, referenced) = self.queue.pop_front().unwrap();
            if referenced {
                self.queue.push_back((oldest, false));
            } else {
                evicted = Some(oldest);
            }
        }
        self.queue.push_back((id, true));
        (false, evicted)
    }
}

/// The newest last; the hand is an id, so that it need not move with the positions.
struct Sieve {
    capacity: usize,
    queue: Vec<(u32, bool)>,
    hand: Option<u32>,
}

impl Naive for Sieve {
    fn access(&mut self, id: u32) -> Outcome {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.0 == id) {
            entry.1 = true;
            return (true, None);
        }
        let mut evicted = None;
        if self.queue.len() == self.capacity {
            let position = |hand| self.queue.iter().position(|entry| entry.0 == hand);
            let mut at = self.hand.map_or(0, |hand| position(hand).unwrap());
            while self.queue[at].1 {
                self.queue[at].1 = false;
                at = (at + 1) % self.queue.len();
            }
            self.hand = self.queue.get(at + 1).map(|entry| entry.0);
            evicted = Some(self.queue.remove(at).0);
        }
        self.queue.push((id, false));
        (false, evicted)
    }
}

/// Ids with their hits; the oldest first. Hits are not capped, but count as three at most when the main queue looks.
struct S3Fifo {
    capacity: usize,
    small: VecDeque<(u32, u32)>,
    main: VecDeque<(u32, u32)>,
    ghosts: VecDeque<u32>,
}

impl S3Fifo {
    fn main_share(&self) -> usize {
        self.capacity - (self.capacity / 10).max(1)
    }

    fn evict_small(&mut self) -> Option<u32> {
        while let Some((id, hits)) = self.small.pop_front() {
            if hits <= 1 {
                self.ghosts.push_back(id);
                if self.ghosts.len() > self.main_share() {
                    self.ghosts.pop_front();
                }
                return Some(id);
            }
            self.main.push_back((id, 0));
        }
        None
    }

    fn evict_main(&mut self) -> Option<u32> {
        while let Some((id, hits)) = self.main.pop_front() {
            if hits == 0 {
                return Some(id);
            }
            self.main.push_back((id, hits.min(3) - 1));
        }
        None
    }
}

impl Naive for S3Fifo {
    fn access(&mut self, id: u32) -> Outcome {
        let mut entries = self.small.iter_mut().chain(&mut self.main);
        if let Some(entry) = entries.find(|entry| entry.0 == id) {
            entry.1 += 1;
            return (true, None);
        }
        let ghost = self.ghosts.iter().position(|&ghost| ghost == id);
        if let Some(ghost) = ghost {
            self.ghosts.remove(ghost);
        }
        let mut evicted = None;
        while self.small.len() + self.main.len() == self.capacity {
            let from_main = self.main.len() > self.main_share() || self.small.is_empty();
            evicted = if from_main { self.evict_main() } else { self.evict_small() };
        }
        if ghost.is_some() { &mut self.main } else { &mut self.small }.push_back((id, 0));
        (false, evicted)
    }
}
