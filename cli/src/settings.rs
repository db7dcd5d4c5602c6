//! What the library calls settings, and what people can change: the options of the command line.

use cohop::Error;

use super::given::Given;

/// What the library calls a setting, the options that set it, and whether it is wrong usage if it cannot be.
type Setting = (&'static str, &'static [&'static str], bool);

const SETTINGS: [Setting; 46] = [
    ("attention_dropout", &["--attention-dropout"], true),
    ("bases", &["--bases"], true),
    ("batch_size", &["--batch-size"], true),
    ("batch_sizes", &["--batch-sizes"], false),
    ("blocks", &["--blocks"], true),
    ("cache", &["--cache-rows"], true),
    ("cache policy", &["--cache-policy"], true),
    ("class_weights", &["--class-weights"], true),
    ("clip_norm", &["--clip-norm"], true),
    ("data", &["--data"], false),
    ("data_on_device", &["--on-device"], true),
    ("dependence", &["--dependence"], true),
    ("device", &["--device"], true),
    ("dropout", &["--dropout"], true),
    ("edge_factor", &["--edge-factor"], true),
    ("edge_weights", &["--weighted"], true),
    ("embedding", &["--embedding"], false),
    ("eval_every", &["--eval-every"], true),
    ("fanouts", &["--fanouts"], true),
    ("feature dtype", &["--feature-dtype"], true),
    ("first layer", &["--first-layer"], true),
    ("heads", &["--heads"], true),
    ("hidden", &["--hidden"], true),
    ("input_dropout", &["--input-dropout"], true),
    ("kappa", &["--kappa", "--kappas"], true),
    ("layers", &["--layers"], true),
    ("lr", &["--lr"], true),
    ("lr_schedule", &["--lr-schedule"], true),
    ("machine", &["--machine"], true),
    ("method", &["--sampler", "--samplers"], true),
    ("metric", &["--metric"], true),
    ("miss rate", &["--miss-rate"], true),
    ("mode", &["--mode"], true),
    ("momentum", &["--momentum"], false),
    ("n_layers", &["--layers"], true),
    ("n_pes", &["--pes"], true),
    ("n_relations", &[], true),
    ("number of processing elements", &[], true),
    ("output_heads", &["--output-heads"], true),
    ("per_relation", &["--per-relation"], true),
    ("precision", &["--precision"], true),
    ("scale", &["--scale"], true),
    ("split", &["--split"], true),
    ("weight_decay", &["--weight-decay"], true),
    ("weighted", &["--weighted"], true),
    ("workers", &["--workers"], true),
];

/// Plain words for what no option sets.
const IN_WORDS: [(&str, &str); 5] = [
    ("n_classes", "number of classes"),
    ("n_features", "number of feature columns"),
    ("n_relations", "number of relations"),
    ("n_vertices", "number of vertices"),
    ("train_idx", "list of training vertices"),
];

fn setting(argument: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|(name, ..)| *name == argument)
}

/// Whether an error is about what was asked for, not about what was found.
pub(super) fn is_usage(error: &Error) -> bool {
    let Error::InvalidArgument { argument, .. } = error else { return false };
    // What is no option is the input of an import.
    argument.starts_with("--")
        || *argument == "IN"
        || setting(argument).is_some_and(|&(.., is_usage)| is_usage)
}

/// The same error in the words of the command: a setting is called by the option that sets it.
pub(super) fn as_options(error: Error, given: &Given) -> Error {
    let Error::InvalidArgument { argument, value, expected } = error else { return error };
    let options = setting(argument).map_or(&[][..], |(_, options, _)| options);
    let option = options.iter().find(|option| given.knows(option.trim_start_matches('-')));
    let in_words = IN_WORDS.iter().find(|(name, _)| *name == argument).map(|(_, words)| words);
    let argument = option.or(in_words).copied().unwrap_or(argument);
    Error::InvalidArgument { argument, value, expected }
}
