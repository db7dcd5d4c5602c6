//! `cohop study kappa`

use clap::Args;

use super::{Bar, Common, check_distinct, json_lines};
use crate::given::Given;
use crate::number;
use crate::plot::{Plot, Scale, Series};
use crate::table::{Table, count};
use crate::train::{LearningArgs, ModelArgs, SamplerName};
use crate::{Global, output};
use cohop::cache::Policy;
use cohop::data::Dataset;
use cohop::nn::MAX_LAYERS;
use cohop::rng::{Dependence, Kappa};
use cohop::sample::Fanouts;
use cohop::study::{
    self, ConvergenceConfig, ConvergenceRow, KappaChoice, KappaConfig, KappaRow, NEAR_INFINITE, recommend,
};
use cohop::train::{LrSchedule, TrainConfig};
use cohop::{Error, Result};

/// Misses of the feature cache by kappa
///
/// Samples consecutive training batches, and looks up the vertices whose features they need in caches. The windows
/// of kappa batches that hold the first pass over the training vertices fill the caches and are not counted. Recommends
/// the smallest kappa whose misses per seed are within 5 % of those of kappa = inf.
#[derive(Debug, Args)]
pub(super) struct KappaArgs {
    #[command(flatten)]
    common: Common,
    /// The samplers to compare
    #[arg(long, value_enum, value_delimiter = ',', default_value = "neighbor,labor0")]
    samplers: Vec<SamplerName>,
    /// Neighbours per layer, from the seeds outwards; full or -1 means all [default: 10 a layer]
    #[arg(long, value_name = "K,K,...", allow_hyphen_values = true, value_parser = number::fanouts)]
    fanouts: Option<Fanouts>,
    /// Number of layers [default: as many as --fanouts has, or 3]
    #[arg(long, value_name = "N", value_parser = number::between(1, MAX_LAYERS as u64))]
    layers: Option<usize>,
    /// How many consecutive minibatches depend on each other: numbers or inf
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,4,16,64,256,inf",
        value_name = "N,N,...",
        value_parser = number::setting::<Kappa>
    )]
    kappas: Vec<Kappa>,
    /// How: renew or rotate
    #[arg(
        long,
        default_value_t = Dependence::default(),
        value_name = "renew|rotate",
        value_parser = number::setting::<Dependence>
    )]
    dependence: Dependence,
    /// Capacities of the cache [default: a hundredth, a twentieth and a fifth of the vertices]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...", value_parser = number::any::<usize>())]
    cache_rows: Vec<usize>,
    /// Which rows the cache keeps: lru, clock, sieve or s3-fifo
    #[arg(long, default_value = "lru", value_name = "POLICY", value_parser = number::setting::<Policy>)]
    cache_policy: Policy,
    /// Seeds per minibatch [default: 1024, or all training vertices if they are fewer]
    #[arg(long, value_name = "N", value_parser = number::at_least_one())]
    batch_size: Option<usize>,
    /// Number of counted passes over the training vertices, rounded up to whole windows of kappa batches
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = number::whole::<u64>(1, u64::MAX))]
    passes: u64,
    /// Also train for this many epochs with each sampler and kappa, and show validation accuracy and macro F1 after
    /// each epoch, mean and standard deviation over --seeds; --plot then draws the accuracy. What is trained, and how,
    /// say the options of `cohop train` below, on the graph as it is (without inverse relations)
    #[arg(
        long,
        default_value_t = 0,
        value_name = "EPOCHS",
        value_parser = number::whole::<u64>(0, MAX_EPOCHS)
    )]
    train: u64,
    /// Number of random seeds to train with, from --seed on
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = number::between(1, MAX_SEEDS))]
    seeds: usize,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    learning: LearningArgs,
}

/// The options that only training has.
const OF_TRAINING: [&str; 24] = [
    "--attention-dropout",
    "--bases",
    "--blocks",
    "--class-weights",
    "--clip-norm",
    "--decay",
    "--dropout",
    "--embedding",
    "--heads",
    "--hidden",
    "--input-dropout",
    "--lr",
    "--lr-schedule",
    "--model",
    "--momentum",
    "--no-self-loops",
    "--optimizer",
    "--output-heads",
    "--own-root",
    "--precision",
    "--row-normalize",
    "--seeds",
    "--weight-decay",
    "--weighted",
];

impl KappaArgs {
    /// `Ok` if the options go together: what can be told before the data is read.
    fn check(&self, given: &Given) -> Result<()> {
        let samplers: Vec<String> =
            self.samplers.iter().map(|name| study::method_name(&name.method())).collect();
        check_distinct("--samplers", &samplers)?;
        check_distinct("--kappas", &self.kappas)?;
        check_distinct("--cache-rows", &self.cache_rows)?;
        if let (Some(fanouts), Some(layers)) = (&self.fanouts, self.layers)
            && fanouts.0.len() != layers
        {
            let expected = format!("one number for each of the {layers} layers");
            return Err(Error::invalid("--fanouts", fanouts, expected));
        }
        if self.train == 0 {
            let without = OF_TRAINING.into_iter().find(|option| given.has(&option[2..]));
            return without.map_or(Ok(()), |option| {
                Err(Error::invalid(option, "given", "none without --train, which trains"))
            });
        }
        if matches!(self.learning.lr_schedule, LrSchedule::Plateau { .. }) {
            let expected = "constant, step or cosine: the validation loss is not measured here";
            return Err(Error::invalid("--lr-schedule", self.learning.lr_schedule, expected));
        }
        self.learning.check()?;
        self.model.check_used(given)?;
        self.samplers.iter().try_for_each(|&sampler| self.model.check_sampler(sampler))
    }

    fn fanouts(&self) -> Fanouts {
        self.fanouts.clone().unwrap_or_else(|| Fanouts(vec![10; self.layers.unwrap_or(3)]))
    }
}

/// Of training, each with a row of results.
const MAX_EPOCHS: u64 = 1_000_000;

/// Of training.
const MAX_SEEDS: u64 = 1000;

pub(super) fn run(global: &Global, args: &KappaArgs, given: &Given) -> Result<()> {
    args.check(given)?;
    let dataset = args.common.load()?;
    let n_seeds = study::seed_pool(&dataset)?.len();
    let part = |of: usize| (dataset.n_vertices() / of).max(1);
    let config = KappaConfig {
        samplers: args.samplers.iter().map(|name| name.method()).collect(),
        fanouts: args.fanouts(),
        kappas: args.kappas.clone(),
        dependence: args.dependence,
        cache_rows: match args.cache_rows.len() {
            0 => vec![part(100), part(20), part(5)],
            _ => args.cache_rows.clone(),
        },
        policy: args.cache_policy,
        batch_size: args.batch_size.unwrap_or(n_seeds.min(1024)),
        passes: args.passes,
        seed: global.seed,
    };
    let training = match args.train {
        0 => None,
        epochs => {
            args.model.check_data(&dataset, &args.common.data)?;
            Some(training(global.seed, args, &config, epochs, &dataset))
        }
    };
    training.iter().try_for_each(|training| training.check(&dataset))?;
    let rows = study::kappa(&dataset, &config, &mut Bar::new(global))?;
    let choices = recommend(&rows);
    let trained = match &training {
        None => Vec::new(),
        Some(training) => study::convergence(&dataset, training, &mut Bar::new(global))?,
    };
    args.common.draw(|| match trained.is_empty() {
        true => plot(&dataset.name, &config, &rows, &choices),
        false => plot_training(&dataset.name, &config, &trained),
    })?;
    if global.json {
        json_lines(&rows)?;
        json_lines(&choices)?;
        return json_lines(&trained);
    }
    print(&rows)?;
    recommendations(&choices)?;
    if trained.is_empty() { Ok(()) } else { print_training(&trained) }
}

fn training(
    seed: u64,
    args: &KappaArgs,
    config: &KappaConfig,
    epochs: u64,
    dataset: &Dataset,
) -> ConvergenceConfig {
    let KappaArgs { model, learning, .. } = args;
    // One model for all samplers.
    let full = args.samplers.iter().all(|&sampler| sampler == SamplerName::Full);
    let train = TrainConfig {
        epochs,
        row_normalize: model.row_normalize,
        model: model.config(learning, config.fanouts.0.len(), full, dataset),
        optimizer: learning.optimizer(model.model, full),
        lr_schedule: learning.lr_schedule,
        clip_norm: learning.clip_norm,
        class_weights: learning.class_weights.clone().unwrap_or_default(),
        eval: model.model.eval(full),
        precision: learning.precision,
        ..TrainConfig::default()
    };
    ConvergenceConfig {
        samplers: config.samplers.clone(),
        fanouts: config.fanouts.clone(),
        kappas: config.kappas.clone(),
        dependence: config.dependence,
        batch_size: config.batch_size,
        seeds: (0..args.seeds as u64).map(|run| seed.wrapping_add(run)).collect(),
        train,
    }
}

fn print_training(rows: &[ConvergenceRow]) -> Result<()> {
    let runs = rows.first().map_or(0, |row| row.runs);
    output::line(format_args!("\nvalidation, mean and standard deviation over {runs} random seeds:"))?;
    let head = ["sampler", "kappa", "epochs", "accuracy", "± s.d.", "macro F1", "± s.d."];
    let mut table = Table::new(1, head);
    for row in rows {
        let values = [row.val_acc, row.val_macro_f1].map(|runs| [runs.mean, runs.deviation]);
        let values = values.into_iter().flatten().map(|x| format!("{x:.4}"));
        let names = [row.sampler.clone(), row.kappa.to_string(), count(row.epochs as f64)];
        table.row(names.into_iter().chain(values));
    }
    table.print()
}

fn plot_training(data: &str, config: &KappaConfig, rows: &[ConvergenceRow]) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let point = (row.epochs as f64, row.val_acc.mean);
        match series.last_mut() {
            Some(series) if row.epochs > 1 => series.points.push(point),
            _ => series
                .push(Series { name: format!("{}, κ = {}", row.sampler, row.kappa), points: vec![point] }),
        }
    }
    // The last row of each line has the spread that its end has.
    let ends = rows.chunk_by(|a, b| b.epochs > a.epochs).filter_map(|line| line.last());
    for (series, end) in series.iter_mut().zip(ends) {
        series.name += &format!(": {:.4} ± {:.4}", end.val_acc.mean, end.val_acc.deviation);
    }
    Plot {
        title: format!("Validation accuracy on {data}, batches of {}", config.batch_size),
        x_label: "epochs".to_owned(),
        y_label: "accuracy".to_owned(),
        x_scale: Scale::Linear,
        series,
        even: None,
    }
}

fn print(rows: &[KappaRow]) -> Result<()> {
    let mut head = vec!["sampler", "kappa", "cache rows", "discarded", "batches", "accesses", "misses"];
    head.extend(["miss rate", "misses/seed"]);
    let mut table = Table::new(1, head);
    for row in rows {
        table.row([
            row.sampler.clone(),
            row.kappa.to_string(),
            count(row.cache_rows as f64),
            count(row.discarded as f64),
            count(row.batches as f64),
            count(row.accesses as f64),
            count(row.misses as f64),
            format!("{:.4}", row.miss_rate),
            format!("{:.3}", row.misses_per_seed),
        ]);
    }
    table.print()
}

fn recommendations(choices: &[KappaChoice]) -> Result<()> {
    output::line("discarded: batches that warmed up the cache, before the batches counted")?;
    if choices.is_empty() {
        return output::line("no recommendation without inf among --kappas");
    }
    let percent = (NEAR_INFINITE - 1.0) * 100.0;
    output::line(format_args!(
        "\nsmallest kappa with misses/seed within {percent:.0} % of those of kappa = inf:"
    ))?;
    for KappaChoice { sampler, cache_rows, recommended_kappa, misses_over_infinite } in choices {
        let rows = count(*cache_rows as f64);
        output::line(format_args!(
            "{sampler}, cache of {rows} rows: kappa {recommended_kappa}, {misses_over_infinite:.3} times the misses"
        ))?;
    }
    Ok(())
}

/// Infinity is drawn at this multiple of the largest finite κ.
const PAST_LARGEST: f64 = 8.0;

fn plot(data: &str, config: &KappaConfig, rows: &[KappaRow], choices: &[KappaChoice]) -> Plot {
    let finite = config.kappas.iter().filter_map(|kappa| match kappa {
        Kappa::Steps(steps) => Some(steps.get()),
        Kappa::Infinite => None,
    });
    let largest = finite.max().unwrap_or(1) as f64;
    let x = |kappa: Kappa| match kappa {
        Kappa::Steps(steps) => steps.get() as f64,
        Kappa::Infinite => largest * PAST_LARGEST,
    };
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let own =
            |choice: &&KappaChoice| choice.sampler == row.sampler && choice.cache_rows == row.cache_rows;
        let choice = choices.iter().find(own).map(|choice| format!(": κ = {}", choice.recommended_kappa));
        let name = format!("{}, {} rows{}", row.sampler, row.cache_rows, choice.unwrap_or_default());
        let point = (x(row.kappa), row.miss_rate);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    let infinite = config.kappas.contains(&Kappa::Infinite);
    let note = if infinite { format!(" (at {}: inf)", largest * PAST_LARGEST) } else { String::new() };
    Plot {
        title: format!(
            "Miss rate of the {} cache on {data}, batches of {}",
            config.policy, config.batch_size
        ),
        x_label: format!("κ{note}"),
        y_label: "miss rate".to_owned(),
        x_scale: Scale::Logarithmic,
        series,
        even: None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    /// Else one would be without effect, and nobody be told.
    #[test]
    fn the_options_of_training_are_all_named() {
        let command = LearningArgs::augment_args(ModelArgs::augment_args(Command::new("train")));
        let mut names: Vec<String> =
            command.get_arguments().filter_map(|a| a.get_long()).map(|long| format!("--{long}")).collect();
        names.push("--seeds".to_owned());
        names.sort();
        assert_eq!(names, OF_TRAINING);
    }
}
