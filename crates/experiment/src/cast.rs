//! Who took part in a run: brokers and programs that made load, noted where they are started, so that no report can forget them.

use crate::identity::{self, Identity};
use crate::report::Block;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What makes the load where none of the testers does.
pub const OWN_CLIENT: &str = "a client in lepus-bench itself, which waits for answers";

/// What the table of brokers means.
const CONFIRMS: &str = "A confirm: of a persistent message in a durable queue. Many loads here publish transient messages; \
                        what a confirm of those means is said where it is known.";

/// The list of those who took part, shared by all who start somebody.
#[derive(Clone, Debug, Default)]
pub struct Cast(Arc<Mutex<Members>>);

#[derive(Debug, Default)]
struct Members {
    brokers: Vec<Identity>,
    loads: Vec<(String, String)>,
}

impl Cast {
    /// Notes a broker, once for each way in which it was started. `identify` is asked for those that are new.
    pub fn broker(&self, name: &str, settings: &str, identify: impl FnOnce() -> Identity) {
        let mut members = self.members();
        let is_known = |known: &Identity| known.name == name && known.settings == settings;
        if !members.brokers.iter().any(is_known) {
            members.brokers.push(identify());
        }
    }

    /// Notes who made a load. `identify` says who it is, and is asked once.
    pub fn load(&self, name: &str, identify: impl FnOnce() -> String) {
        let mut members = self.members();
        if !members.loads.iter().any(|(known, _)| known == name) {
            members.loads.push((name.to_owned(), identify()));
        }
    }

    /// The brokers so far, in the order of their first starts.
    pub fn brokers(&self) -> Vec<Identity> {
        self.members().brokers.clone()
    }

    /// Who made load so far.
    pub fn loads(&self) -> Vec<String> {
        self.members().loads.iter().map(|(_, who)| who.clone()).collect()
    }

    /// Who made load so far, in one text.
    #[must_use]
    pub fn loads_text(&self) -> String {
        let loads = self.loads();
        if loads.is_empty() { "none".to_owned() } else { loads.join("; ") }
    }

    /// The brokers' names, each with who it is in a line.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        self.brokers().into_iter().map(|broker| (broker.name.clone(), broker.line())).collect()
    }

    /// The brokers for the machine-readable result.
    #[must_use]
    pub fn json(&self) -> Value {
        self.brokers().iter().map(Identity::json).collect()
    }

    /// All of them for the page.
    #[must_use]
    pub fn page(&self) -> Vec<Block> {
        let brokers = self.brokers();
        let mut blocks = vec![Block::Heading("Who took part".to_owned())];
        if !brokers.is_empty() {
            blocks.push(Block::Table(identity::table(&brokers)));
            blocks.push(Block::Text(CONFIRMS.to_owned()));
        }
        blocks.push(Block::Text(format!("The load was made by: {}.", self.loads_text())));
        blocks
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // A list with everything that was noted before a panic is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Subject;
    use std::path::Path;

    #[test]
    fn everybody_is_noted_once_for_each_way_to_start() {
        let cast = Cast::default();
        let mut asked = 0;
        for settings in ["a", "b", "a"] {
            cast.broker("x", settings, || {
                asked += 1;
                let mut subject = Subject::elsewhere("amqp://there");
                subject.product = "x".to_owned();
                subject.settings = settings.to_owned();
                Identity::of(&subject, "x", Path::new(""))
            });
        }
        cast.load("t", || "tester 1".to_owned());
        cast.clone().load("t", || "tester 2".to_owned());
        let settings: Vec<String> = cast.brokers().into_iter().map(|one| one.settings).collect();
        assert_eq!((asked, settings), (2, vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(cast.loads(), ["tester 1"]);
    }
}
