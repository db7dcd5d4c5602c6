//! The examples run to their end; each checks what it shows.

macro_rules! examples {
    ($($name:ident: $path:literal, $what:ident;)*) => {$(
        #[path = $path]
        mod $name;

        #[test]
        fn $what() {
            $name::main().unwrap();
        }
    )*};
}

examples! {
    cooperative: "../../examples/cooperative.rs", cooperative_training_equals_training_alone;
    custom_layer: "../../examples/custom_layer.rs", a_layer_of_ones_own_trains;
    custom_model: "../../examples/custom_model.rs", a_model_of_ones_own_trains;
    custom_operation: "../../examples/custom_operation.rs", an_operation_of_ones_own_has_the_right_gradient;
    custom_sampler: "../../examples/custom_sampler.rs", a_sampler_of_ones_own_trains;
    inference: "../../examples/inference.rs", a_saved_model_predicts_another_graph;
    kernels: "../../examples/kernels.rs", kernels_run_on_ones_own_arrays;
    train: "../../examples/train.rs", the_loop_of_one_page_trains;
}
