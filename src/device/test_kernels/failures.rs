//! Launches that fail, on the emulator: every launcher of `cuda/cohop.h` returns the error of each of its launches, and
//! what is called after that is right.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{
    MOST_CASES, NamedBody, attention, batch_norm, elementwise, exchange, gather_aggregate, loss, narrow,
    optimizer, relation, rows, sample, sparse,
};
use crate::device::cuda::tests::{choose_schedule, compare_draws, gather_too_much};
use crate::device::{Cuda, Gather, MatrixMut, Storage};
use crate::error::{Error, Result, panic_message};

unsafe extern "C" {
    fn cohop_emulate_fail_launch(launcher: *const c_char, number: u64);
    fn cohop_emulate_take_launches(
        each: extern "C" fn(*mut c_void, *const c_char, u64),
        context: *mut c_void,
    );
}

/// A launcher, and the number of a launch in one call of it, from 1.
type Launch = (String, u64);

/// The launch fails when it is made next.
fn fail((launcher, number): &Launch) {
    let launcher = CString::new(launcher.as_str()).unwrap();
    // SAFETY: text that ends with a zero, which is copied.
    unsafe { cohop_emulate_fail_launch(launcher.as_ptr(), *number) };
}

/// This thread's launches since the last call.
fn take_launches() -> BTreeSet<Launch> {
    extern "C" fn add(launches: *mut c_void, launcher: *const c_char, number: u64) {
        // SAFETY: the set below, which nothing else uses during the call, and text that ends with a zero.
        let (launches, launcher) =
            unsafe { (&mut *launches.cast::<BTreeSet<Launch>>(), CStr::from_ptr(launcher)) };
        launches.insert((launcher.to_string_lossy().into_owned(), number));
    }
    let mut launches = BTreeSet::new();
    // SAFETY: `add` takes the set that it is called with, during the call.
    unsafe { cohop_emulate_take_launches(add, (&raw mut launches).cast()) };
    launches
}

/// Fails each launch that `bodies` make, which must stop at the error; returns those launches.
fn fail_each(bodies: &[NamedBody]) -> BTreeSet<Launch> {
    let device = Cuda::<f32>::new(0).unwrap();
    choose_schedule(0);
    let mut failed = BTreeSet::new();
    take_launches();
    for (name, body) in bodies {
        body(&device);
        for launch in take_launches() {
            if !failed.insert(launch.clone()) {
                continue;
            }
            fail(&launch);
            let outcome = catch_unwind(AssertUnwindSafe(|| body(&device)));
            let said = outcome.err().map(|panic| panic_message(&*panic));
            let is_told = said.as_ref().is_some_and(|said| said.contains("told to fail"));
            assert!(is_told, "{name}, {launch:?}: {said:?}");
            take_launches();
        }
    }
    failed
}

/// The bodies of a module with these names.
fn named(bodies: &[NamedBody], names: &str) -> Vec<NamedBody> {
    let named = |name| *bodies.iter().find(|body| body.0 == name).unwrap_or_else(|| panic!("no body {name}"));
    names.split_whitespace().map(named).collect()
}

/// Launchers of `cuda/cohop.h`: functions that are given a stream.
fn launchers() -> BTreeSet<String> {
    let declarations = include_str!("../../../cuda/cohop.h").split(';');
    let launchers = declarations.filter(|declaration| declaration.contains("void* stream"));
    launchers
        .map(|declaration| declaration.split("int32_t ").find(|text| text.starts_with("cohop_")).unwrap())
        .map(|text| text.split('(').next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_launcher_returns_the_error_of_each_of_its_launches() {
    MOST_CASES.set(8);
    let bodies = [
        named(
            elementwise::BODIES,
            "scale_and_multiply divide map add_bias_activate activate_backward sum_rows dot",
        ),
        named(elementwise::BODIES, "scale_rows copy_columns dropout"),
        named(rows::BODIES, "gather narrow_index scatter_add"),
        named(exchange::BODIES, "pack_rows gather_offered add_offered"),
        named(gather_aggregate::BODIES, "gather_aggregate_of_hubs"),
        named(sparse::BODIES, "permutations_are_inverted"),
        named(sparse::BODIES, "spmm spmm_heads spmm_max spmm_max_backward transpose"),
        named(narrow::BODIES, "every_narrow_value_is_widened rows_have_factors"),
        named(narrow::BODIES, "every_value_is_rounded_to_nearest"),
        named(sparse::BODIES, "inverse_degree inverse_weight_sum sddmm_dot sddmm_add"),
        named(attention::BODIES, "gat_is_its_formula gatv2_is_its_formula edge_softmax_is_its_formula"),
        named(attention::BODIES, "head_dot_is_its_formula hubs"),
        named(relation::BODIES, "both_orders_equal_the_sum_over_edges"),
        named(batch_norm::BODIES, "batch_norm moments"),
        named(loss::BODIES, "log_softmax_nll right_predictions_are_counted element_losses"),
        named(optimizer::BODIES, "adam adam_of_rows sgd many_parameters"),
        named(sample::BODIES, "short_rows rows_beyond_a_warps_registers many_relations layers"),
        named(sample::BODIES, "candidates_in_a_hash_table degree_factors"),
    ];
    let draws: NamedBody = ("draws", compare_draws);
    let failed = fail_each(&[bodies.concat(), vec![draws]].concat());
    eprintln!("{} launches failed", failed.len());
    let names: BTreeSet<String> = failed.into_iter().map(|(launcher, _)| launcher).collect();
    assert_eq!(names, launchers());
}

const TABLE: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

/// Rows of three of a table of three rows of two; waits for them.
fn gathered(device: &Cuda<f32>, index: [u32; 3]) -> Result<Vec<f32>> {
    let (table, index) = (device.upload(&TABLE)?, device.upload(&index)?);
    let mut out = device.upload(&[f32::NAN; 6])?;
    let to = MatrixMut::from_view(Cuda::<f32>::view_mut(&mut out), 3, 2)?;
    device.gather(Cuda::<f32>::view(&table), 3, Cuda::<f32>::view(&index), to)?;
    device.download(Cuda::<f32>::view(&out))
}

/// Of two queues that both meet one, each is told of its own, once; what they do next is right.
#[test]
fn an_index_out_of_range_comes_up_once_in_its_queue() {
    let first = Cuda::<f32>::new(0).unwrap();
    let second = first.beside().unwrap();
    let table = first.upload(&TABLE).unwrap();
    let gather = |device: &Cuda<f32>, index: [u32; 3]| {
        let index = device.upload(&index).unwrap();
        let mut out = device.upload(&[f32::NAN; 6]).unwrap();
        let to = MatrixMut::from_view(Cuda::<f32>::view_mut(&mut out), 3, 2).unwrap();
        device.gather(Cuda::<f32>::view(&table), 3, Cuda::<f32>::view(&index), to).unwrap();
    };
    gather(&first, [0, 7, 1]);
    // The other queue has no error of its own yet, and does not take that one.
    assert_eq!(gathered(&second, [2, 0, 1]).unwrap(), [4.0, 5.0, 0.0, 1.0, 2.0, 3.0]);
    gather(&second, [8, 0, 9]);
    let error = second.synchronize().unwrap_err();
    assert!(
        matches!(error, Error::IndexOutOfRange { position: 0 | 2, value: 8 | 9, limit: 3, .. }),
        "{error}"
    );
    let error = first.synchronize().unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 1, value: 7, limit: 3, .. }), "{error}");
    for device in [&first, &second] {
        device.synchronize().unwrap();
        assert_eq!(gathered(device, [1, 1, 0]).unwrap(), [2.0, 3.0, 2.0, 3.0, 0.0, 1.0]);
    }
}

#[test]
fn a_launch_that_fails_is_told_once_and_nothing_later_is_spoilt() {
    let first = Cuda::<f32>::new(0).unwrap();
    let second = first.beside().unwrap();
    for device in [&first, &second] {
        fail(&("cohop_gather".to_owned(), 1));
        let error = gathered(device, [0, 1, 2]).unwrap_err();
        assert!(matches!(error, Error::Device { operation: "gather", .. }), "{error}");
        for device in [&first, &second] {
            assert_eq!(gathered(device, [0, 1, 2]).unwrap(), TABLE);
        }
    }
}

/// More rows than a grid has blocks for: nothing is run, and the error says what was launched.
#[test]
fn an_impossible_launch_names_its_launcher_and_its_grid() {
    let device = Cuda::<f32>::new(0).unwrap();
    let error = gather_too_much(&device).unwrap_err().to_string();
    assert!(error.contains("gather") && error.contains("grid (4294967295,1,1)"), "{error}");
    assert_eq!(gathered(&device, [0, 1, 2]).unwrap(), TABLE);
}
