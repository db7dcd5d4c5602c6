//! Which options were given, so that a run can be compared with the one that it goes on with.

use std::collections::{BTreeMap, BTreeSet};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use cohop::train::CheckpointInfo;
use cohop::{Error, Result};

/// The note of a checkpoint that has the options of its run.
const OPTIONS: &str = "options";

/// The note of a checkpoint that has the name or path of its data set.
pub(super) const DATA: &str = "data";

/// Options that may differ in a resumed run: results do not depend on them, or they say how far it goes.
const FREE: [&str; 19] = [
    "checkpoint",
    "comm",
    "comm-timeout",
    "data",
    "device",
    "epochs",
    "help",
    "json",
    "log",
    "other-data",
    "overwrite",
    "patience",
    "plot",
    "quiet",
    "resume",
    "threads",
    "verbose",
    "version",
    "workers",
];

/// The options of a command by their long names.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// The names of all options that the command has.
    names: BTreeSet<String>,
    /// The values of all options that have one, their defaults among them.
    values: BTreeMap<String, Vec<String>>,
    /// Those on the command line.
    explicit: BTreeSet<String>,
}

impl Given {
    /// What `matches` of the command line `command` holds for its subcommand, and for that of a subcommand.
    pub fn of(command: &Command, matches: &ArgMatches) -> Self {
        let mut given = Given::default();
        let (mut command, mut matches) = (command, matches);
        while let Some((name, below)) = matches.subcommand() {
            let Some(subcommand) = command.find_subcommand(name) else { break };
            (command, matches) = (subcommand, below);
            given.add(command, matches);
        }
        given
    }

    fn add(&mut self, command: &Command, matches: &ArgMatches) {
        for argument in command.get_arguments() {
            let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
            self.names.insert(long.to_owned());
            let Ok(Some(raw)) = matches.try_get_raw(id) else { continue };
            self.values.insert(long.to_owned(), raw.map(|v| v.to_string_lossy().into_owned()).collect());
            if matches.value_source(id) == Some(ValueSource::CommandLine) {
                self.explicit.insert(long.to_owned());
            }
        }
    }

    /// Whether the option is on the command line.
    pub fn has(&self, long: &str) -> bool {
        self.explicit.contains(long)
    }

    /// Whether the command has such an option.
    pub fn knows(&self, long: &str) -> bool {
        self.names.contains(long)
    }

    /// The notes of a run with these options.
    pub fn notes(&self, data: &str) -> Result<BTreeMap<String, String>> {
        let kept: BTreeMap<_, _> = self.values.iter().filter(|(k, _)| !FREE.contains(&k.as_str())).collect();
        let options = serde_json::to_string(&kept).map_err(|e| Error::format("options", e))?;
        Ok(BTreeMap::from([(OPTIONS.to_owned(), options), (DATA.to_owned(), data.to_owned())]))
    }

    /// `Ok` if a resumed run heeds all options of the command line: those that it takes from its checkpoint have the
    /// values that they have there.
    pub fn check_resumed(&self, info: &CheckpointInfo) -> Result<()> {
        let stored = info.notes.get(OPTIONS).and_then(|text| serde_json::from_str(text).ok());
        let stored: BTreeMap<String, Vec<String>> = stored.unwrap_or_default();
        for long in self.explicit.iter().filter(|long| !FREE.contains(&long.as_str())) {
            let (now, then) = (&self.values[long], stored.get(long));
            if then != Some(now) {
                let then =
                    then.map_or_else(|| "without it".to_owned(), |then| format!("with {}", then.join(" ")));
                let value = format!("given with --{long} {}", now.join(" "));
                let expected = format!("the settings of the checkpoint's run, which began {then}");
                return Err(Error::invalid("--resume", value, expected));
            }
        }
        Ok(())
    }
}
