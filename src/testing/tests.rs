//! A comparison that passes whatever it is given would hide every fault.

use super::assert_close;

#[test]
fn values_as_far_apart_as_the_tolerance_are_close() {
    assert_close("nothing", &[0.0f32; 0], &[0.0; 0], |_, _| 0.0);
    assert_close("same", &[-0.0f32, 3.0], &[0.0, 3.0], |_, _| 0.0);
    assert_close("shifted", &[1.5f32, -4.25], &[1.0, -4.0], |i, _| [0.5, 0.25][i]);
    assert_close("scaled", &[1.5, -6.0], &[1.0f32, -4.0], |_, expected| 0.5 * expected.abs());
}

#[test]
#[should_panic = "out[1] is 2.5, expected 2.0 up to 2.5e-1"]
fn the_first_element_that_is_further_away_is_named() {
    assert_close("out", &[1.25, 2.5, 9.0], &[1.0, 2.0, 3.0], |_, _| 0.25);
}

#[test]
#[should_panic = "out[0] is NaN"]
fn a_nan_is_not_close_to_a_number() {
    assert_close("out", &[f32::NAN], &[0.0], |_, _| f64::INFINITY);
}

#[test]
#[should_panic = "out[0] is NaN"]
fn a_nan_is_not_close_to_itself() {
    assert_close("out", &[f64::NAN], &[f64::NAN], |_, _| 1.0);
}

#[test]
#[should_panic = "lengths differ"]
fn a_prefix_is_not_close() {
    assert_close("out", &[1.0], &[1.0, 2.0], |_, _| 1.0);
}
