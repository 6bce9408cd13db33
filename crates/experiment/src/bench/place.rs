//! Where brokers are measured: programs, data, the core of the broker and that of the load.

use crate::stop::Stop;
use crate::subject::{Choice, Kind, Placement, Site, Subject};
use std::io;

/// Everything that starting a broker takes.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where programs and data are.
    pub site: Site,
    /// The core of the broker.
    pub core: usize,
    /// Whether somebody wants the whole to end: then nothing is started any more.
    pub stop: Stop,
}

impl Place {
    /// Starts a broker on its core, with an empty directory, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started or does not answer in time.
    pub fn start(&self, kind: Kind) -> io::Result<Subject> {
        self.begin(kind, true)
    }

    /// Starts a broker on what the last one of its kind left.
    ///
    /// # Errors
    /// As for [`Place::start`].
    pub fn resume(&self, kind: Kind) -> io::Result<Subject> {
        self.begin(kind, false)
    }

    /// The same place, where `lepus` gets further words.
    #[must_use]
    pub fn with_flags(&self, flags: impl IntoIterator<Item = impl Into<String>>) -> Place {
        let mut place = self.clone();
        place.site.flags.extend(flags.into_iter().map(Into::into));
        place
    }

    fn begin(&self, kind: Kind, fresh: bool) -> io::Result<Subject> {
        let name = format!("core {}", self.core);
        let placement = Placement { name, broker: vec![self.core], load: Vec::new() };
        Subject::start(&Choice::Ours(kind), kind.name(), &self.site, &placement, fresh, &self.stop)
    }
}

/// The brokers of these names that can be started here, or all of `known` where none is named. Those that cannot are told
/// with the reason.
///
/// # Errors
/// When a name is not among `known`.
pub fn choose(known: &[Kind], names: &[String], site: &Site) -> Result<Vec<Kind>, String> {
    if let Some(name) = names.iter().find(|name| known.iter().all(|kind| kind.name() != *name)) {
        let known: Vec<&str> = known.iter().map(|kind| kind.name()).collect();
        return Err(format!("no broker `{name}`; there are: {}", known.join(", ")));
    }
    let is_asked = |kind: &Kind| names.is_empty() || names.iter().any(|name| name == kind.name());
    let mut kinds: Vec<Kind> = known.iter().copied().filter(is_asked).collect();
    kinds.retain(|kind| match kind.missing(site) {
        Some(reason) => {
            eprintln!("{} is left out: {reason}", kind.name());
            false
        }
        None => true,
    });
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn brokers_are_chosen_by_name_where_they_can_be_started() {
        let mut site = Site::new(PathBuf::from("/no/such/lepus"));
        site.bench = std::env::current_exe().unwrap();
        let choose = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            choose(&[Kind::Lepus, Kind::NullRelay, Kind::NullBroker], &names, &site)
        };
        assert_eq!(choose(&[]), Ok(vec![Kind::NullRelay, Kind::NullBroker]));
        assert_eq!(choose(&["null-broker"]), Ok(vec![Kind::NullBroker]));
        assert_eq!(choose(&["lepus"]), Ok(vec![]));
        assert!(choose(&["rabbitmq"]).unwrap_err().contains("lepus, null-relay, null-broker"));
    }
}
