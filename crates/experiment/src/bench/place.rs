//! Where brokers are measured: programs, data, the core of the broker and that of the load.

use crate::cast::Cast;
use crate::ground::Ground;
use crate::identity::Identity;
use crate::stop::Stop;
use crate::subject::{Choice, Kind, Placement, Site, Subject};
use lepus_perf::to_stderr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything that starting a broker takes.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where programs and data are.
    pub site: Site,
    /// The core of the broker.
    pub core: usize,
    /// Whether somebody wants the whole to end: then nothing is started any more.
    pub stop: Stop,
    /// Who took part.
    pub cast: Cast,
    /// The directory of this run, in which the site's data is.
    pub ground: Arc<Ground>,
    /// Where reports go.
    pub results: PathBuf,
    /// What a reader of the report must know of how it was asked for.
    pub notes: Vec<String>,
}

impl Place {
    /// Starts a broker on its core, with an empty directory, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started or does not answer in time.
    pub fn start(&self, kind: Kind) -> io::Result<Subject> {
        self.begin(kind, true)
    }

    /// Why nothing more comes of a load, where somebody wants the whole to end.
    ///
    /// # Errors
    /// When it is so.
    pub fn goes_on(&self) -> io::Result<()> {
        goes_on(&self.stop)
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

    /// A place for what is measured without brokers, with results below `results`.
    ///
    /// # Errors
    /// When the directory cannot be made, or signals cannot be had.
    pub fn without_brokers(results: &Path) -> io::Result<Place> {
        let ground = Arc::new(Ground::below(results)?);
        let mut site = Site::new(PathBuf::from("lepus"));
        site.scratch = ground.path().to_owned();
        let (results, stop) = (results.to_owned(), Stop::on_signals()?);
        let cast = Cast::default();
        Ok(Place { site, core: 0, stop, cast, ground, results, notes: Vec::new() })
    }

    fn begin(&self, kind: Kind, fresh: bool) -> io::Result<Subject> {
        let name = format!("core {}", self.core);
        let placement = Placement { name, broker: vec![self.core], load: Vec::new() };
        let (choice, name) = (Choice::Ours(kind), kind.name());
        let subject = Subject::start(&choice, name, &self.site, &placement, fresh, &self.stop)?;
        let identify = || Identity::of(&subject, name, &self.site.lepus);
        self.cast.broker(name, &subject.settings, identify);
        Ok(subject)
    }
}

/// The same, of a wish to stop alone.
///
/// # Errors
/// When somebody wishes it.
pub fn goes_on(stop: &Stop) -> io::Result<()> {
    match stop.is_wanted() {
        true => Err(io::Error::other("it was ended early")),
        false => Ok(()),
    }
}

/// The brokers of these names that can be started here, or all of `known` where none is named. Those that cannot are told,
/// here and in the sentences for the report, with the reason.
///
/// # Errors
/// When a name is not among `known`.
pub fn choose(
    known: &[Kind],
    names: &[String],
    site: &Site,
) -> Result<(Vec<Kind>, Vec<String>), String> {
    if let Some(name) = names.iter().find(|name| known.iter().all(|kind| kind.name() != *name)) {
        let known: Vec<&str> = known.iter().map(|kind| kind.name()).collect();
        return Err(format!("no broker `{name}`; there are: {}", known.join(", ")));
    }
    let is_asked = |kind: &Kind| names.is_empty() || names.iter().any(|name| name == kind.name());
    let mut kinds: Vec<Kind> = known.iter().copied().filter(is_asked).collect();
    let mut left_out = Vec::new();
    kinds.retain(|kind| {
        let missing = kind.missing(site);
        left_out.extend(missing.iter().map(|why| format!("{} is left out: {why}.", kind.name())));
        missing.is_none()
    });
    left_out.iter().for_each(|sentence| to_stderr(format_args!("{sentence}")));
    Ok((kinds, left_out))
}

#[cfg(test)]
impl Place {
    /// A place whose results lie in `results`, where no broker can be started.
    pub fn for_test(results: &Path) -> Place {
        let ground = Arc::new(Ground::below(results).unwrap());
        Place {
            site: Site::new(PathBuf::from("/no/such/lepus")),
            core: 0,
            stop: Stop::default(),
            cast: Cast::default(),
            ground,
            results: results.to_owned(),
            notes: vec!["a note".to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_chosen_by_name_where_they_can_be_started() {
        let mut site = Site::new(PathBuf::from("/no/such/lepus"));
        site.bench = std::env::current_exe().unwrap();
        let choose = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            choose(&[Kind::Lepus, Kind::NullRelay, Kind::NullBroker], &names, &site)
        };
        let left_out = vec!["lepus is left out: /no/such/lepus is not there.".to_owned()];
        let both = vec![Kind::NullRelay, Kind::NullBroker];
        assert_eq!(choose(&[]), Ok((both, left_out.clone())));
        assert_eq!(choose(&["null-broker"]), Ok((vec![Kind::NullBroker], vec![])));
        assert_eq!(choose(&["lepus"]), Ok((vec![], left_out)));
        assert!(choose(&["rabbitmq"]).unwrap_err().contains("lepus, null-relay, null-broker"));
    }
}
