//! Flags of the command line that are settings, and the configuration that they lead to.

use crate::config::{self, Config, Kind, Place, SETTINGS, Setting, Sources, document};
use clap::builder::ValueHint;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Where the configuration comes from, as far as the command line says: every setting is a flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The file named by `--config`.
    pub config: Option<String>,
    /// Flags that are settings, with their dashes, and their values, in the order in which they were given.
    pub flags: Vec<(String, String)>,
    /// Those of them that the command has under another name, as (flag of the setting, name there), for messages.
    pub renamed: &'static [(&'static str, &'static str)],
}

impl Settings {
    /// Reads the configuration from all places that it may come from.
    ///
    /// # Errors
    /// All that is wrong with it, in words.
    pub(crate) fn load(self) -> Result<Config, String> {
        let sources = Sources::fetch(self.config, self.flags);
        let loaded = sources.and_then(|sources| {
            for note in sources.notes() {
                lepus_console::to_stderr(format_args!("warning: {note}"));
            }
            config::load(&sources)
        });
        loaded.map_err(|mut errors| {
            for error in &mut errors.0 {
                let Place::Flag(flag) = &mut error.place else { continue };
                if let Some((_, name)) = self.renamed.iter().find(|(setting, _)| setting == flag) {
                    *flag = (*name).to_owned();
                }
            }
            errors.to_string()
        })
    }
}

/// The table of settings as flags: those of one section stand together in the help.
impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config").long("config").short('c').value_name("FILE");
        let config = config.value_hint(ValueHint::FilePath);
        let mut command = command.arg(config.help("Configuration file (TOML); also LEPUS_CONFIG."));
        for setting in SETTINGS {
            let long = flag(setting, &setting.flag()).help_heading(document::title(setting));
            command = command.arg(long.help(document::summary(setting)));
            if let Some(short) = setting.short {
                // Not an alias: what is wrong with a value names the flag that was given.
                command = command.arg(flag(setting, short).hide(true));
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Settings::augment_args(command)
    }
}

fn flag(setting: &Setting, flag: &str) -> Arg {
    let name = flag.trim_start_matches('-').to_owned();
    let arg = Arg::new(name.clone()).long(name).value_name("VALUE").action(ArgAction::Append);
    match setting.kind {
        // Alone it means true.
        Kind::Switch => arg.num_args(0..=1).default_missing_value("true"),
        Kind::Path => arg.allow_hyphen_values(true).value_hint(ValueHint::AnyPath),
        _ => arg.allow_hyphen_values(true),
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Settings, clap::Error> {
        let mut found = Vec::new();
        for flag in SETTINGS.iter().flat_map(Setting::flags) {
            let name = flag.trim_start_matches('-');
            let indices = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<String>(name).into_iter().flatten();
            found.extend(indices.zip(values).map(|(at, text)| (at, (flag.clone(), text.clone()))));
        }
        found.sort();
        let flags = found.into_iter().map(|(_, flag)| flag).collect();
        let config = matches.get_one("config").cloned();
        Ok(Settings { config, flags, ..Settings::default() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Settings::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Where the running broker is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "The running broker")]
pub struct BrokerFlags {
    /// Its data directory; data when left out
    #[arg(long, alias = "data", value_name = "DIR", allow_hyphen_values = true, global = true)]
    data_dir: Option<String>,
    /// Its control socket, where that is elsewhere
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, global = true)]
    control_socket: Option<String>,
    /// Its configuration file, which names the two above
    #[arg(long, short, value_name = "FILE", allow_hyphen_values = true, global = true)]
    config: Option<String>,
}

impl BrokerFlags {
    /// What they say of the configuration.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let flags = [("--data-dir", &self.data_dir), ("--control-socket", &self.control_socket)];
        let given = |(flag, text): (&str, &Option<String>)| Some((flag.to_owned(), text.clone()?));
        Settings {
            config: self.config.clone(),
            flags: flags.into_iter().filter_map(given).collect(),
            ..Settings::default()
        }
    }
}
