//! Traces worked out by hand.

use super::*;

/// Checks what each access of `trace` gives up; `None` for a hit, -1 for a free slot.
#[track_caller]
fn check(policy: Policy, capacity: usize, trace: &[(u32, Option<i64>)]) {
    let mut directory = Directory::new(policy, capacity, None).unwrap();
    for (step, &(id, expected)) in trace.iter().enumerate() {
        let actual = match directory.access(id).unwrap() {
            Access::Hit(_) => None,
            Access::Miss { evicted, .. } => Some(evicted.map_or(-1, i64::from)),
        };
        assert_eq!(actual, expected, "step {step}: {id}");
    }
}

const HIT: Option<i64> = None;
const FREE: Option<i64> = Some(-1);

/// The reference string of the textbooks (Silberschatz et al., *Operating System Concepts*): 12 faults with 3 frames.
#[test]
fn lru() {
    let trace = [
        (7, FREE),
        (0, FREE),
        (1, FREE),
        (2, Some(7)),
        (0, HIT),
        (3, Some(1)),
        (0, HIT),
        (4, Some(2)),
        (2, Some(3)),
        (3, Some(0)),
        (0, Some(4)),
        (3, HIT),
        (2, HIT),
        (1, Some(0)),
        (2, HIT),
        (0, Some(3)),
        (1, HIT),
        (7, Some(2)),
        (0, HIT),
        (1, HIT),
    ];
    check(Policy::Lru, 3, &trace);
    assert_eq!(trace.iter().filter(|step| step.1 != HIT).count(), 12);
}

/// Stallings, *Operating Systems*, "Behavior of four page replacement algorithms": 5 faults after the first three.
#[test]
fn clock() {
    let trace = [
        (2, FREE),
        (3, FREE),
        (2, HIT),
        (1, FREE),
        (5, Some(2)),
        (2, Some(3)),
        (4, Some(1)),
        (5, HIT),
        (3, Some(5)),
        (2, HIT),
        (5, Some(4)),
        (2, HIT),
    ];
    check(Policy::Clock, 3, &trace);
}

#[test]
fn sieve() {
    let trace = [
        (0, FREE),
        (1, FREE),
        (2, FREE),
        (0, HIT),
        // The hand clears 0, takes 1, stays before 2. From old to new: 0 2 3.
        (3, Some(1)),
        // 0 3 4; 0 is not looked at again, though its bit is clear.
        (4, Some(2)),
        (0, HIT),
        (3, HIT),
        // The hand clears 3, takes 4, the newest, and is at the end: 0 3 5.
        (5, Some(4)),
        // From the oldest: clears 0, takes 3: 0 5 6.
        (6, Some(3)),
        (0, HIT),
        (5, HIT),
        (6, HIT),
        // All are cleared, from 5 round to 0; then 5 is clear.
        (7, Some(5)),
    ];
    check(Policy::Sieve, 3, &trace);
}

/// Shares of 3 slots: 1 for the small queue, 2 for the main one and for the ghosts.
#[test]
fn s3_fifo() {
    let trace = [
        (0, FREE),
        (1, FREE),
        (2, FREE),
        (0, HIT),
        (0, HIT),
        (1, HIT),
        // 0 was hit twice and moves, 1 only once: small 2 3, main 0, ghosts 1.
        (3, Some(1)),
        // 1 returns to the main queue: small 3, main 0 1, ghosts 2.
        (1, Some(2)),
        (0, HIT),
        // Small 4, main 0 1, ghosts 2 3.
        (4, Some(3)),
        // 2 returns, and leaves the ghosts before 4 comes to them: main 0 1 2, ghosts 3 4.
        (2, Some(4)),
        // The main queue exceeds its share; 0 has a hit left: small 5, main 2 0.
        (5, Some(1)),
        // 1 was not remembered. 3 is forgotten: small 1, main 2 0, ghosts 4 5.
        (1, Some(5)),
        // Small 3, main 2 0, ghosts 5 1.
        (3, Some(1)),
        // Main 2 0 5, ghosts 1 3.
        (5, Some(3)),
    ];
    check(Policy::S3Fifo, 3, &trace);
}
