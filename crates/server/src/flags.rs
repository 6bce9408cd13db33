//! Flags of the command line that are settings, and the configuration that they lead to.

use crate::config::load::unknown_flag;
use crate::config::{self, Config, Kind, SETTINGS, Sources};

/// Where the configuration comes from, as far as the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The file named by `--config`.
    pub config: Option<String>,
    /// Flags that are settings, with their dashes, and their values.
    pub flags: Vec<(String, String)>,
}

impl Settings {
    /// Reads the configuration from all places that it may come from.
    ///
    /// # Errors
    /// All that is wrong with it, in words.
    pub(crate) fn load(self) -> Result<Config, String> {
        let sources = Sources::fetch(self.config, self.flags);
        let loaded = sources.and_then(|sources| config::load(&sources));
        loaded.map_err(|errors| errors.to_string())
    }
}

/// Takes the value of a flag that is a setting.
pub(crate) fn setting(
    flag: String,
    parser: &mut lexopt::Parser,
    settings: &mut Settings,
) -> Result<(), String> {
    let Some(setting) = SETTINGS.iter().find(|one| one.has_flag(&flag)) else {
        return Err(format!("flag {flag}: {}", unknown_flag(&flag)));
    };
    let text = if setting.kind == Kind::Switch {
        // A switch alone means true; `--pin=false` and `--pin false` work like other settings.
        match parser.optional_value() {
            Some(word) => word.display().to_string(),
            None => switch_value(parser).unwrap_or("true").to_owned(),
        }
    } else {
        value(parser)?
    };
    settings.flags.push((flag, text));
    Ok(())
}

fn switch_value(parser: &mut lexopt::Parser) -> Option<&'static str> {
    let mut rest = parser.try_raw_args()?;
    let word = rest.peek()?.to_str()?;
    let text = if word == "true" {
        "true"
    } else if word == "false" {
        "false"
    } else {
        return None;
    };
    rest.next();
    Some(text)
}

/// Takes the value of the flag that was read last.
pub(crate) fn value(parser: &mut lexopt::Parser) -> Result<String, String> {
    let word = parser.value().map_err(|error| error.to_string())?;
    word.into_string().map_err(|word| format!("{} is not valid text", word.display()))
}
