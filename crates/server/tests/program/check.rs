//! `lepus store check` says of a directory what a start finds in it, and writes nothing.

use crate::running::{Scratch, lepus};
use lepus_base::{Now, QueueId, ShardId};
use lepus_broker::directory::{Request, VhostMetadata};
use lepus_reactor::files::Blocking;
use lepus_server::definitions::Definitions;
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::{Damage, Event, Fetch, Lane, Lookup, Message, Place, Settings, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOG: LogId = LogId(1);
pub(crate) const MESSAGES: u64 = 3000;

fn settings() -> Settings {
    Settings {
        segment_bytes: 1 << 16,
        index_pages_max: 0,
        compaction_rate: 0,
        read_retry_limit: Duration::ZERO,
        ..Settings::new(LOG)
    }
}

/// A store, and the files it has.
pub(crate) struct Running {
    pub(crate) store: Store,
    files: Blocking,
    pub(crate) out: Operations,
    millis: u64,
    events: Vec<Event>,
}

impl Running {
    pub(crate) fn open(directory: &Path) -> Running {
        let mut out = Operations::default();
        let store = Store::open(settings(), &mut out);
        let files = Blocking::new(directory);
        let mut running = Running { store, files, out, millis: 1, events: Vec::new() };
        running.carry_out();
        running
    }

    pub(crate) fn carry_out(&mut self) {
        while !self.out.list.is_empty() {
            for operation in std::mem::take(&mut self.out.list) {
                let completion = self.files.run(operation);
                self.store.complete(Now::from_millis(self.millis), completion, &mut self.out);
            }
        }
        self.store.take_events(&mut self.events);
    }

    fn cycle(&mut self) {
        self.millis += 100;
        let now = Now::from_millis(self.millis);
        self.store.flush(now, &mut self.out);
        self.store.work(now, &mut self.out);
        self.carry_out();
    }

    /// Appends messages of many lengths, the checkpoint said anew now and then.
    pub(crate) fn fill(&mut self, queue: QueueId, numbers: std::ops::Range<u64>) {
        self.fill_with(queue, numbers, |seq| (seq * 7 % 61) as usize);
    }

    /// The same with messages of these lengths, about.
    pub(crate) fn fill_with(
        &mut self,
        queue: QueueId,
        numbers: std::ops::Range<u64>,
        length: impl Fn(u64) -> usize,
    ) {
        let lane = self.store.lane(Lane::of(queue));
        for seq in numbers {
            let body = format!("body {seq:06} {}", "x".repeat(length(seq)));
            let message = Message {
                exchange: b"",
                routing_key: b"q",
                properties: &[0, 0],
                body: body.as_bytes(),
            };
            let place = Place { lane, seq, deadline_millis: 0 };
            while self.store.append(&message, &[place]).is_err() {
                self.cycle();
            }
            if seq % 40 == 0 {
                self.store.want_durable();
                self.cycle();
            }
            if seq % 500 == 0 {
                self.store.request_checkpoint();
            }
        }
        self.store.want_durable();
        for _ in 0..20 {
            self.cycle();
        }
    }

    /// Ends in order.
    pub(crate) fn close(mut self) {
        self.store.close();
        while !self.store.is_closed() {
            self.cycle();
        }
    }

    /// Reads everything that is there.
    fn read_all(&mut self) {
        let lanes: Vec<_> = self.store.lanes().map(|(_, slot)| slot).collect();
        for slot in lanes {
            let mut entries = Vec::new();
            while !self.store.is_fetched(slot) {
                if self.store.fetch(slot, 100, &mut entries, &mut self.out) == Fetch::Pending {
                    self.carry_out();
                }
            }
            for entry in entries {
                while matches!(
                    self.store.lookup_sized(entry.position, entry.bytes, &mut self.out),
                    Lookup::Pending
                ) {
                    self.carry_out();
                }
            }
        }
        self.carry_out();
    }
}

/// Definitions of the queues q, r and s in the virtual host v. Their ids.
pub(crate) fn define(directory: &Path) -> [QueueId; 3] {
    let names = ["q", "r", "s"];
    let mut definitions = Definitions::open(directory, 1).unwrap();
    let vhost = Request::CreateVhost { name: "v".into(), metadata: VhostMetadata::default() };
    definitions.carry_out(&vhost).unwrap().unwrap();
    for name in names {
        let request = Request::DeclareQueue {
            vhost: "v".into(),
            name: name.into(),
            server_named: false,
            durable: true,
            exclusive: None,
            auto_delete: false,
            arguments: lepus_amqp::table::Table::new(),
            declared_on: ShardId(0),
            user: "guest".into(),
        };
        definitions.carry_out(&request).unwrap().unwrap();
    }
    let found = definitions.directory();
    let ids = names.map(|name| found.queue(found.vhost("v").unwrap(), name).unwrap().id);
    definitions.finish().unwrap();
    // Another start, so that a checkpoint knows what was there.
    Definitions::open(directory, 1).unwrap().finish().unwrap();
    ids
}

/// A data directory with a queue and messages in it.
pub(crate) fn filled(directory: &Path, is_orderly: bool) {
    let [queue, ..] = define(directory);
    let mut running = Running::open(directory);
    running.fill(queue, 0..MESSAGES);
    if is_orderly {
        running.close();
    }
}

/// Every file below a directory.
pub(crate) fn image(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            for (name, bytes) in image(&path) {
                files.insert(Path::new(path.file_name().unwrap()).join(name), bytes);
            }
        } else {
            files.insert(path.file_name().unwrap().into(), std::fs::read(&path).unwrap());
        }
    }
    files
}

fn put(directory: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    let _ = std::fs::remove_dir_all(directory);
    for log in ["log-00000000", "log-00000001"] {
        std::fs::create_dir_all(directory.join(log)).unwrap();
    }
    for (name, bytes) in files {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
}

/// What `lepus store check` says: places that are damaged, and what a start refuses with.
fn checked(directory: &Path) -> (BTreeSet<String>, Vec<String>, String) {
    let before = image(directory);
    let output = lepus(&["store", "check", directory.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(image(directory) == before, "{said}");
    let lines = |word: &'static str| {
        let found = said.lines().filter_map(move |line| line.trim().strip_prefix(word));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    let places = lines("damaged: ").into_iter().filter(|line| line.contains(" bytes: "));
    let places: BTreeSet<_> =
        places.map(|line| line.split(" bytes: ").next().unwrap().to_owned()).collect();
    let refusals = lines("a start is refused: ");
    let is_clean = said.ends_with("no damage\n") && lines("damaged: ").is_empty();
    assert_eq!(output.status.code(), Some(i32::from(!is_clean)), "{said}");
    assert_eq!(is_clean, places.is_empty() && refusals.is_empty(), "{said}");
    (places, refusals, said)
}

/// The same by a start, and by reading what it serves.
fn started(directory: &Path) -> (BTreeSet<String>, Vec<String>) {
    let refusal = Definitions::open(directory, 1).err();
    let mut running = Running::open(directory);
    let is_refused = running.events.iter().any(|event| matches!(event, Event::Refused(_)));
    if !is_refused {
        running.read_all();
    }
    let mut places = BTreeSet::new();
    let damages = running.events.iter().filter_map(|event| match event {
        Event::Damaged(damage) => Some(*damage),
        _ => None,
    });
    let damages: Vec<_> = damages.collect();
    for damage in &damages {
        // Of a file that is not there nothing more needs to be said.
        let is_whole_file = |found: &Damage| (found.offset, found.bytes) == (0, 0);
        let is_missing = |found: &Damage| found.file == damage.file && is_whole_file(found);
        if is_whole_file(damage) || !damages.iter().any(is_missing) {
            places.insert(format!("{} at {}, {}", damage.file, damage.offset, damage.bytes));
        }
    }
    let mut refusals: Vec<_> = refusal.into_iter().collect();
    refusals.extend(is_refused.then(|| "log-00000001".to_owned()));
    (places, refusals)
}

/// Ways to damage a file: each gives another one.
fn ways(file: &Path, bytes: &[u8]) -> Vec<(String, Option<Vec<u8>>)> {
    let mut ways = vec![("missing".to_owned(), None)];
    let mut push = |text: String, other: Vec<u8>| ways.push((text, Some(other)));
    let name = file.file_name().unwrap().to_str().unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for at in [8, 70, 120, end / 2, end.saturating_sub(10)] {
        if at < end {
            let mut other = bytes.to_vec();
            other[at] ^= 0x41;
            push(format!("bits at {at}"), other);
        }
    }
    for at in [0, end.saturating_sub(1) / 4096 * 4096] {
        let mut other = bytes.to_vec();
        let until = bytes.len().min(at + 4096);
        other[at..until].fill(0);
        push(format!("zeros at {at}"), other);
    }
    push("cut".to_owned(), bytes[..end / 2].to_vec());
    if name == "root" {
        let mut other = bytes.to_vec();
        other[20] ^= 1;
        other[4096 + 20] ^= 1;
        push("both records".to_owned(), other);
    }
    if name.starts_with("segment-") && end > 0 && end + 300 < bytes.len() {
        // A write that did not end.
        let mut other = bytes.to_vec();
        let torn = bytes[64..364].to_vec();
        let at = end.next_multiple_of(4096).min(bytes.len() - 300);
        other[at..at + 300].copy_from_slice(&torn);
        push("torn tail".to_owned(), other);
    }
    ways
}

#[test]
fn check_and_start_agree_whatever_is_damaged() {
    for is_orderly in [true, false] {
        let scratch = Scratch::new("check-agrees");
        let directory = scratch.path().join("data");
        std::fs::create_dir(&directory).unwrap();
        filled(&directory, is_orderly);
        // Prepared segments are made anew.
        let mut whole = image(&directory);
        whole.retain(|_, bytes| bytes.iter().any(|byte| *byte != 0));
        put(&directory, &whole);
        let (places, refusals, said) = checked(&directory);
        assert!(places.is_empty() && refusals.is_empty(), "{said}");
        assert!(said.contains("3000 messages can be read"), "{said}");
        let (mut damaged, mut refused, mut files) = (0, 0, BTreeSet::new());
        for (file, bytes) in &whole {
            let is_known = file.to_str().unwrap().parse::<File>().is_ok();
            if !is_known || (is_orderly && file.starts_with("log-00000000")) {
                continue;
            }
            for (way, other) in ways(file, bytes) {
                let mut copy = whole.clone();
                match other {
                    Some(other) => copy.insert(file.clone(), other),
                    None => copy.remove(file),
                };
                put(&directory, &copy);
                let (places, refusals, said) = checked(&directory);
                let (found, refused_with) = started(&directory);
                let what = format!("{}: {way}, orderly {is_orderly}\n{said}", file.display());
                assert_eq!(refusals.len(), refused_with.len(), "{what}{refused_with:?}");
                for (said, wanted) in refusals.iter().zip(&refused_with) {
                    assert!(said.contains(wanted.as_str()), "{what}{wanted}");
                }
                let of_messages = |place: &&String| place.starts_with("log-00000001");
                let places: BTreeSet<_> = places.iter().filter(of_messages).cloned().collect();
                let difference: Vec<_> = places.symmetric_difference(&found).collect();
                assert!(difference.is_empty(), "{what}{difference:?}");
                damaged += usize::from(!found.is_empty());
                refused += refused_with.len();
                if !found.is_empty() || !refused_with.is_empty() {
                    let name = file.file_name().unwrap().to_str().unwrap();
                    files.insert(name.split('-').next().unwrap().to_owned());
                }
            }
        }
        assert!(damaged > 20 && (is_orderly || refused > 10), "{damaged} {refused}");
        let kinds = ["checkpoint", "index", "root", "segment"].map(str::to_owned);
        assert_eq!(files, kinds.into(), "some damage of each kind of file is found");
    }
}

#[test]
fn a_log_that_queues_name_and_that_is_missing_is_named() {
    let scratch = Scratch::new("check-missing");
    let directory = scratch.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    filled(&directory, true);
    std::fs::rename(directory.join("log-00000001"), scratch.path().join("elsewhere")).unwrap();
    let (_, refusals, said) = checked(&directory);
    assert_eq!(refusals, [Definitions::open(&directory, 1).unwrap_err()], "{said}");
}

/// With new definitions a queue could get the id of another, and its messages.
#[test]
fn messages_without_definitions_stop_the_start_and_are_named() {
    let scratch = Scratch::new("check-undefined");
    let directory = scratch.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    filled(&directory, true);
    let log = directory.join("log-00000000");
    std::fs::rename(&log, scratch.path().join("elsewhere")).unwrap();
    let (_, refusals, said) = checked(&directory);
    assert_eq!(refusals, [Definitions::open(&directory, 1).unwrap_err()], "{said}");
    assert!(refusals[0].contains("log-00000000 is missing or empty"), "{said}");
    let mut drop_all = lepus(&["store", "orphans", directory.to_str().unwrap(), "--drop"]);
    let dropped = drop_all.output().unwrap();
    assert_eq!(dropped.status.code(), Some(1), "what is whose cannot be told");
    // It is there, and says nothing.
    assert!(log.is_dir() && std::fs::read_dir(&log).unwrap().count() == 0);
    assert_eq!(Definitions::open(&directory, 1).unwrap_err(), refusals[0]);
    std::fs::remove_dir(&log).unwrap();
    std::fs::rename(scratch.path().join("elsewhere"), &log).unwrap();
    Definitions::open(&directory, 1).unwrap().finish().unwrap();
    let (places, refusals, said) = checked(&directory);
    assert!(places.is_empty() && refusals.is_empty(), "{said}");
    assert!(said.contains("3000 messages can be read"), "{said}");
}
