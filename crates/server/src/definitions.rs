//! The definitions log before the shards start: it is opened, added to and synced here, with
//! nobody to keep waiting.

use crate::random;
use lepus_base::{QueueId, ShardId};
use lepus_broker::definitions::{DefinitionsLog, Draft, LOG, OpenError, RecoveryError};
use lepus_broker::directory::{Capacity, Directory, Request};
use lepus_broker::refusal::Refusal;
use lepus_broker::start::own_log;
use lepus_reactor::files::{Blocking, sync_directory};
use lepus_shard::Clock;
use lepus_store::Settings;
use lepus_store::disk::File;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The definitions of a broker that does not run yet.
#[derive(Debug)]
pub struct Definitions {
    draft: Draft,
    files: Blocking,
    clock: Clock,
    data_dir: PathBuf,
}

impl Definitions {
    /// Opens the log in a data directory that this process holds; makes it where it is missing.
    ///
    /// # Errors
    /// In words, with the file and what to do, for a log that cannot be used. Nothing was written to it
    /// then.
    pub fn open(data_dir: &Path, shards: u16) -> Result<Definitions, String> {
        let mut files = Blocking::new(data_dir);
        let clock = Clock::start();
        let mut run = |operation| files.run(operation);
        let hash = random::hash_state()?;
        let settings = Settings { key: random::log_key()?, ..DefinitionsLog::settings() };
        let draft = match Draft::look(settings, clock.now(), hash, shards, &mut run) {
            Ok(draft) if draft.is_new() && has_run(data_dir) => return Err(lost(data_dir)),
            Ok(draft) => draft.go_on(clock.now(), &mut run),
            Err(error) => Err(error),
        };
        let draft = draft.map_err(|error| unusable(data_dir, &error, &files))?;
        ready_logs(data_dir, &draft.directory, shards)?;
        Ok(Definitions { draft, files, clock, data_dir: data_dir.to_owned() })
    }

    /// Ids of queues and of what delayed exchanges held back that were deleted, as far as the log tells.
    #[must_use]
    pub fn deleted(&self) -> &[QueueId] {
        self.draft.deleted()
    }

    /// What exists.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.draft.directory
    }

    /// Sets how much further requests may add.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.draft.directory.set_capacity(capacity);
    }

    /// Whether this is the first start in the data directory.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.draft.is_new()
    }

    /// Fulfils a request, or tells its refusal.
    ///
    /// # Errors
    /// In words, for a log that takes nothing any more.
    pub fn carry_out(&mut self, request: &Request) -> Result<Result<(), Refusal>, String> {
        let (now, files) = (self.clock.now(), &mut self.files);
        let done = self.draft.carry_out(now, request, &mut |operation| files.run(operation));
        let done = done.map_err(|error| unusable(&self.data_dir, &error, &self.files))?;
        Ok(done.map(|_| ()))
    }

    /// Has everything synced. The directory is for every shard, the log for shard 0.
    ///
    /// # Errors
    /// In words, for a disk that does not take it.
    pub fn finish(self) -> Result<(Directory, DefinitionsLog), String> {
        let Definitions { draft, mut files, clock, data_dir } = self;
        let done = draft.finish(clock.now(), &mut |operation| files.run(operation));
        done.map_err(|error| unusable(&data_dir, &error, &files))
    }
}

/// Makes sure that every log of messages is there before a definition names it, so that one that is
/// named and missing was there once.
///
/// # Errors
/// In words, where one is missing, or cannot be made.
fn ready_logs(data_dir: &Path, directory: &Directory, shards: u16) -> Result<(), String> {
    if let Some(text) = missing_log(data_dir, directory) {
        return Err(text);
    }
    let path = |number| log_path(data_dir, number);
    let mut is_new = false;
    for path in (0..shards).map(path).filter(|path| !path.exists()) {
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        is_new = true;
    }
    if is_new {
        sync_directory(data_dir)
            .map_err(|error| format!("cannot sync {}: {error}", data_dir.display()))?;
    }
    Ok(())
}

fn log_path(data_dir: &Path, number: u16) -> PathBuf {
    data_dir.join(own_log(ShardId(number)).to_string())
}

/// In words, that a log which queues name is not there, and what to do.
#[must_use]
pub fn missing_log(data_dir: &Path, directory: &Directory) -> Option<String> {
    let logs = directory.logs().into_iter();
    let mut missing = logs
        .map(|(number, queues)| (log_path(data_dir, number), queues))
        .filter(|(path, _)| !path.exists());
    let (path, queues) = missing.next()?;
    Some(format!(
        "{} is missing, and {queues} of the queues that are defined have their messages there, so \
         the broker does not start: put the directory back where it was, or restore it from a \
         backup; `lepus store repair` makes it anew, empty, which drops what was in it",
        path.display()
    ))
}

/// Whether a start has got as far as to open logs of messages: then the definitions were on the disk, if only
/// a user and a virtual host.
pub fn has_run(data_dir: &Path) -> bool {
    let entries = std::fs::read_dir(data_dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| {
        let root = format!("{}/root", name.to_string_lossy());
        let is_of_messages = matches!(root.parse::<File>(), Ok(File::Root(log)) if log != LOG);
        let found = data_dir.join(root).try_exists();
        // One that cannot be looked at may be there, but not in what is no directory.
        is_of_messages && found.unwrap_or_else(|error| error.kind() != ErrorKind::NotADirectory)
    })
}

/// In words, that the definitions are gone and messages are not, and what to do.
#[must_use]
pub fn lost(data_dir: &Path) -> String {
    format!(
        "{} is missing or empty, and other logs in {} have been used, so the broker does not start: \
         queues would get the messages of others. Put it back where it was, or restore it from a backup. \
         Without one, put there the {LOG} of a broker that was started and stopped once in an empty \
         directory: then `lepus store orphans` lists, exports and moves the messages",
        data_dir.join(LOG.to_string()).display(),
        data_dir.display(),
    )
}

/// Why the log is no use, and what to do.
#[must_use]
pub fn unusable(data_dir: &Path, error: &OpenError, files: &Blocking) -> String {
    let system = files.failures().last().map(|failure| format!(" ({failure})"));
    let remedy = match error {
        OpenError::Damaged(_) | OpenError::Recovery(RecoveryError::Snapshot) => {
            "queues, users or bindings may be missing, so the broker does not start, and nothing was \
             changed: restore the log from a backup, or go on with what can be read (`lepus store \
             repair` says what that leaves out)"
        }
        OpenError::Full => "make room on the disk",
        OpenError::Stopped(..) | OpenError::Store(lepus_store::Refusal::Disk(..)) => {
            "see to the disk and to the rights of this user in the directory"
        }
        _ => "start the version of lepus that wrote it, or restore it from a backup",
    };
    format!(
        "cannot use the definitions log in {}: {error}{}; {remedy}",
        data_dir.join(LOG.to_string()).display(),
        system.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::table::Table;
    use lepus_broker::directory::Extent;
    use lepus_broker::directory::{VhostMetadata, VhostRef};
    use lepus_probe::Scratch;

    fn create_vhost(name: &str) -> Request {
        Request::CreateVhost { name: name.into(), metadata: VhostMetadata::default() }
    }

    fn names(definitions: &Definitions) -> Vec<String> {
        definitions.directory().accounts().vhosts().map(|info| info.name.to_string()).collect()
    }

    #[test]
    fn what_was_carried_out_is_there_at_the_next_start() {
        let root = Scratch::new("definitions-log");
        let mut definitions = Definitions::open(root.path(), 2).unwrap();
        assert!(definitions.is_new());
        for name in ["a", "b"] {
            definitions.carry_out(&create_vhost(name)).unwrap().unwrap();
        }
        definitions.carry_out(&Request::DeleteVhost { name: "a".into() }).unwrap().unwrap();
        let refusal = Request::ClearPermission { user: "x".into(), vhost: VhostRef::from("b") };
        assert!(definitions.carry_out(&refusal).unwrap().is_err());
        let all = |directory: Directory| directory.snapshot(Extent::All);
        let before = all(definitions.finish().unwrap().0);
        let again = Definitions::open(root.path(), 1).unwrap();
        assert!(!again.is_new());
        assert_eq!(names(&again), ["b"]);
        assert_eq!(all(again.finish().unwrap().0), before);
    }

    #[test]
    fn a_log_of_another_version_is_refused_with_its_place() {
        let root = Scratch::new("definitions-version");
        let mut definitions = Definitions::open(root.path(), 1).unwrap();
        definitions.carry_out(&create_vhost("a")).unwrap().unwrap();
        definitions.finish().unwrap();
        let file = root.path().join("log-00000000/root");
        std::fs::write(&file, vec![0xff; 8192]).unwrap();
        let result = Definitions::open(root.path(), 1).map(|definitions| names(&definitions));
        match result {
            // A root that says nothing is no root: the log is read from its beginning.
            Ok(names) => assert_eq!(names, ["a"]),
            Err(text) => assert!(text.contains("log-00000000"), "{text}"),
        }
    }

    /// Every file below a directory.
    fn image(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.sort_unstable();
        files
    }

    #[test]
    fn damage_stops_every_start_with_its_place_and_nothing_is_written() {
        let root = Scratch::new("definitions-damaged");
        let mut definitions = Definitions::open(root.path(), 1).unwrap();
        for number in 0..100 {
            definitions.carry_out(&create_vhost(&format!("vhost-{number:03}"))).unwrap().unwrap();
        }
        definitions.finish().unwrap();
        // The next start knows by its checkpoint what was there.
        Definitions::open(root.path(), 1).unwrap().finish().unwrap();
        let log = root.path().join("log-00000000");
        let wanted = b"vhost-099";
        let (path, mut bytes, at) = image(&log)
            .into_iter()
            .find_map(|(path, bytes)| {
                let at = bytes.windows(wanted.len()).position(|found| found == wanted)?;
                Some((path, bytes, at))
            })
            .unwrap();
        bytes[at / 4096 * 4096..][..4096].fill(0);
        std::fs::write(&path, bytes).unwrap();
        let before = image(&log);
        for _ in 0..3 {
            let text = Definitions::open(root.path(), 1).unwrap_err();
            let file = path.file_name().unwrap().to_str().unwrap();
            let words = [file, " bytes at offset ", "nothing was changed", "lepus store repair"];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            assert_eq!(image(&log), before);
        }
    }

    #[test]
    fn a_log_that_queues_name_is_made_before_them_and_stops_the_start_when_it_is_missing() {
        let root = Scratch::new("definitions-logs");
        let log = |number: u32| root.path().join(format!("log-{number:08}"));
        let mut definitions = Definitions::open(root.path(), 4).unwrap();
        assert!((1..=4).all(|number| log(number).is_dir()), "before anything is defined");
        definitions.carry_out(&create_vhost("v")).unwrap().unwrap();
        for name in ["a", "b"] {
            let request = Request::DeclareQueue {
                vhost: "v".into(),
                name: name.into(),
                server_named: false,
                durable: true,
                exclusive: None,
                auto_delete: false,
                arguments: Table::new(),
                declared_on: ShardId(3),
                user: "guest".into(),
            };
            definitions.carry_out(&request).unwrap().unwrap();
        }
        let named: Vec<u16> = definitions.directory().logs().into_keys().collect();
        definitions.finish().unwrap();
        // Others may go.
        for number in 1..=4 {
            if !named.contains(&(number - 1)) {
                std::fs::remove_dir(log(number.into())).unwrap();
            }
        }
        Definitions::open(root.path(), 1).unwrap().finish().unwrap();
        for shards in [1, 4] {
            let number = u32::from(named[0]) + 1;
            std::fs::remove_dir(log(number)).unwrap();
            let text = Definitions::open(root.path(), shards).unwrap_err();
            let name = format!("log-{number:08} is missing");
            assert!(text.contains(&name) && text.contains("lepus store repair"), "{text}");
            assert!(!log(number).exists(), "nothing is made of it");
            std::fs::create_dir(log(number)).unwrap();
        }
        Definitions::open(root.path(), 1).unwrap().finish().unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let root = Scratch::new("definitions-file");
        let path = root.path().join("file");
        std::fs::write(&path, "no directory").unwrap();
        let text = Definitions::open(&path, 1).unwrap_err();
        assert!(text.contains("file/log-00000000") && text.contains("see to the disk"), "{text}");
    }
}
