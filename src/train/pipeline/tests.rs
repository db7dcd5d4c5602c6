//! The order, the limits and the errors of what is prepared ahead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// Pipelines on separate threads and on the pool, with their numbers of workers.
fn pipelines<T: Send + 'static>(
    workers: usize,
    depth: usize,
    n_items: usize,
    work: impl Fn(usize) -> Result<T> + Send + Sync + Clone + 'static,
) -> [Pipeline<T>; 2] {
    let threads = Pipeline::new(workers, depth, n_items, work.clone()).unwrap();
    [threads, Pipeline::on_pool(workers, depth, n_items, work)]
}

#[test]
fn items_come_in_order_for_any_number_of_workers() {
    for workers in [0, 1, 2, 8] {
        for n in [0, 1, 5, 100] {
            let work = |i| {
                // Later items are quicker: order must not depend on which is done first.
                std::thread::sleep(Duration::from_micros(300 / (i as u64 + 1)));
                Ok(i)
            };
            for pipeline in pipelines(workers, 3, n, work) {
                let items: Vec<usize> = pipeline.map(Result::unwrap).collect();
                assert_eq!(items, (0..n).collect::<Vec<_>>(), "{workers} workers");
            }
        }
    }
}

#[test]
fn at_most_depth_items_are_made_ahead_and_by_as_many_workers() {
    for workers in [1, 4] {
        for kind in 0..2 {
            let [begun, at_work, most] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
            let counters = (begun.clone(), at_work, most.clone());
            let work = move |i| {
                let (begun, at_work, most) = &counters;
                begun.fetch_add(1, Ordering::SeqCst);
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                at_work.fetch_sub(1, Ordering::SeqCst);
                Ok(i)
            };
            let mut pipeline = if kind == 0 {
                Pipeline::new(workers, 3, 1000, work).unwrap()
            } else {
                Pipeline::on_pool(workers, 3, 1000, work)
            };
            for taken in 1..=5 {
                pipeline.next();
                std::thread::sleep(Duration::from_millis(20));
                assert!(begun.load(Ordering::SeqCst) <= taken + 3);
            }
            assert!(most.load(Ordering::SeqCst) <= workers);
        }
    }
}

#[test]
fn dropping_waits_for_the_workers_and_no_longer() {
    let alive = Arc::new(AtomicUsize::new(0));
    let counter = alive.clone();
    let work = move |i| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        counter.fetch_sub(1, Ordering::SeqCst);
        Ok(i)
    };
    let start = Instant::now();
    for kind in 0..2 {
        let mut pipeline = if kind == 0 {
            Pipeline::new(3, 6, 1_000_000, work.clone()).unwrap()
        } else {
            Pipeline::on_pool(3, 6, 1_000_000, work.clone())
        };
        assert_eq!(pipeline.next().unwrap().unwrap(), 0);
        drop(pipeline);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "waited {:?}", start.elapsed());
}

/// Items that were begun are made, others are not: nobody would take them.
#[test]
fn no_item_is_begun_after_an_error() {
    for kind in 0..2 {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let list = begun.clone();
        let work = move |i| {
            list.lock().unwrap().push(i);
            if i == 2 { Err(Error::invalid("item", i, "another")) } else { Ok(i) }
        };
        let mut pipeline = match kind {
            0 => Pipeline::new(1, 100, 1000, work).unwrap(),
            _ => Pipeline::on_pool(1, 100, 1000, work),
        };
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((&mut pipeline).map(|item| item.is_ok()).collect::<Vec<_>>(), [true, true, false]);
        drop(pipeline);
        assert_eq!(*begun.lock().unwrap(), [0, 1, 2], "{kind}");
    }
}

#[test]
fn a_panic_is_an_error_and_ends_the_iteration() {
    let work = |i| {
        assert!(i != 2, "item two is cursed");
        Ok(i)
    };
    for workers in [0, 3] {
        for mut pipeline in pipelines(workers, 4, 10, work) {
            assert_eq!(pipeline.next().unwrap().unwrap(), 0);
            assert_eq!(pipeline.next().unwrap().unwrap(), 1);
            let error = pipeline.next().unwrap().unwrap_err();
            let is_told = matches!(&error, Error::Worker { problem, .. } if problem.contains("cursed"));
            assert!(is_told, "{error}");
            assert!(pipeline.next().is_none());
        }
    }
}

/// The pool's only thread is the consumer: it must not sleep while it waits.
#[test]
fn a_pool_of_one_thread_prepares_and_consumes() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let square = |i: usize| Ok(rayon::join(|| i * i, || ()).0);
    let squares: Vec<usize> =
        pool.install(|| Pipeline::on_pool(2, 5, 50, square).map(Result::unwrap).collect());
    assert_eq!(squares, (0..50).map(|i| i * i).collect::<Vec<_>>());
    let first = pool.install(|| Pipeline::on_pool(2, 5, 50, square).next());
    assert_eq!(first.unwrap().unwrap(), 0);
}

/// The items whose rests were made.
type Noted = Arc<Mutex<Vec<usize>>>;

/// Pipelines on separate threads and on the pool, whose rests note their items.
fn ended(
    workers: usize,
    n_items: usize,
    rest: impl Fn(usize) -> Result<usize> + Send + Sync + Clone + 'static,
) -> [(Pipeline<usize>, Noted); 2] {
    [false, true].map(|on_pool| {
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (kept, rest) = (ended.clone(), rest.clone());
        let begin = move |i: usize| {
            // Later items are begun sooner, and wait for their turn.
            std::thread::sleep(Duration::from_micros(300 / (i as u64 % 4 + 1)));
            let (ended, rest) = (ended.clone(), rest.clone());
            let make: Rest<usize> = Box::new(move || {
                let mut ended = ended.try_lock().expect("one rest at a time");
                ended.push(i);
                std::thread::sleep(Duration::from_micros(20));
                rest(i)
            });
            Ok(Begun::Rest(make))
        };
        let (depth, jobs) = (queue_depth(workers), if on_pool { workers } else { 0 });
        let shared = Shared::new(depth, n_items, jobs, begin);
        let pipeline =
            if on_pool { Pipeline::jobs(shared) } else { Pipeline::threads(workers, shared).unwrap() };
        (pipeline, kept)
    })
}

#[test]
fn rests_are_made_one_after_the_other_in_order() {
    for workers in [0, 1, 2, 8] {
        for n in [0, 1, 5, 100] {
            for (pipeline, ended) in ended(workers, n, |i| Ok(2 * i)) {
                let items: Vec<usize> = pipeline.map(Result::unwrap).collect();
                assert_eq!(items, (0..n).map(|i| 2 * i).collect::<Vec<_>>(), "{workers} workers");
                assert_eq!(*ended.lock().unwrap(), (0..n).collect::<Vec<_>>(), "{workers} workers");
            }
        }
    }
}

/// What comes after a rest that failed is not made, even if it was begun.
#[test]
fn no_rest_is_made_after_one_that_failed() {
    for workers in [0, 1, 4] {
        for panics in [false, true] {
            let rest = move |i| {
                assert!(i != 3 || !panics, "item three is cursed");
                if i == 3 { Err(Error::invalid("item", i, "another")) } else { Ok(i) }
            };
            for (mut pipeline, ended) in ended(workers, 50, rest) {
                assert_eq!(
                    (&mut pipeline).map(|item| item.is_ok()).collect::<Vec<_>>(),
                    [true, true, true, false]
                );
                drop(pipeline);
                let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                assert_eq!(*ended, [0, 1, 2, 3], "{workers} workers");
            }
        }
    }
}

/// The pool's only thread begins items while it makes the rest of another: it must not wait for itself.
#[test]
fn a_rest_may_be_interrupted_by_the_beginning_of_another() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let rest = |i| {
        // As kernels do that wait for their parts: other jobs run here.
        while rayon::yield_now() == Some(rayon::Yield::Executed) {}
        Ok(i)
    };
    pool.install(|| {
        let [_, (pipeline, _)] = ended(3, 40, rest);
        assert_eq!(pipeline.map(Result::unwrap).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    });
}
