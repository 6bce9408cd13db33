//! How fast messages go to the disk through a store and a file port, beside a bare loop that
//! appends 64 KiB and syncs, in one run.
//!
//! `cargo run --release -p lepus-reactor --example append -- [DIRECTORY] [MIB]`

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant as Clock;

use lepus_base::{Instant, Now, QueueId};
use lepus_reactor::files::{Disk, FilePort, Files};
use lepus_store::disk::{LogId, Operations};
use lepus_store::{AppendError, Lane, LaneSlot, Message, Place, Settings, Store};

const CHUNK: usize = 64 << 10;
const BODY: [u8; 1024] = [b'x'; 1024];

/// A store and its disk, driven as a shard drives them.
struct Bench {
    store: Store,
    lane: LaneSlot,
    port: FilePort,
    woken: Receiver<()>,
    out: Operations,
    started: Clock,
    seq: u64,
}

impl Bench {
    fn new(directory: &Path) -> Bench {
        let (wake, woken) = channel();
        let port = FilePort::start("bench", &Arc::new(Files::new(directory, 0)), move || {
            let _ = wake.send(());
        });
        let mut out = Operations::default();
        let store = Store::open(Settings::new(LogId(1)), &mut out);
        let mut bench = Bench {
            store,
            lane: LaneSlot(0),
            port: port.unwrap(),
            woken,
            out,
            started: Clock::now(),
            seq: 0,
        };
        bench.port.submit(&mut bench.out.list);
        while !bench.store.is_running() || bench.port.in_flight() > 0 {
            bench.turn();
        }
        bench.lane = bench.store.lane(Lane::of(QueueId(1)));
        bench
    }

    fn now(&self) -> Now {
        let nanos = self.started.elapsed().as_nanos() as u64;
        Now { instant: Instant(nanos + 1), wall_millis: 0 }
    }

    /// Waits for the disk and tells the store.
    fn turn(&mut self) {
        self.woken.recv().unwrap();
        let mut done = Vec::new();
        self.port.take(&mut done);
        let now = self.now();
        for (_, completion) in done {
            self.store.complete(now, completion, &mut self.out);
        }
        self.store.take_events(&mut Vec::new());
        self.flush();
    }

    fn flush(&mut self) {
        let now = self.now();
        self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        self.port.submit(&mut self.out.list);
    }

    /// Appends and confirms `total` bytes with at most `window` bytes not yet confirmed, a whole
    /// window at a time if `in_turn`; how many MB/s, and how many syncs.
    fn run(&mut self, total: usize, window: usize, in_turn: bool) -> (f64, u64) {
        let begin = Clock::now();
        let syncs = self.store.figures().syncs;
        let (mut appended, mut confirmed) = (0, 0);
        let mut is_short = false;
        let mut waiting = std::collections::VecDeque::new();
        while confirmed < total {
            let end = if in_turn { confirmed } else { appended } + window;
            let may_begin = !in_turn || appended == confirmed || is_short;
            is_short = false;
            while may_begin && appended < total.min(end) && appended - confirmed < window {
                let message = Message { routing_key: b"queue", body: &BODY, ..Message::default() };
                let place = Place { lane: self.lane, seq: self.seq, deadline_millis: 0 };
                match self.store.append(&message, &[place]) {
                    Ok(_) => {}
                    Err(AppendError::Full) => {
                        is_short = true;
                        break;
                    }
                    Err(error) => panic!("{error:?}"),
                }
                self.seq += 1;
                appended += BODY.len();
                waiting.push_back((self.store.end(), appended));
            }
            if !is_short {
                self.store.want_durable();
            }
            self.flush();
            if self.port.in_flight() > 0 {
                self.turn();
            }
            let durable = self.store.durable();
            while let Some(&(end, bytes)) = waiting.front()
                && end <= durable
            {
                confirmed = bytes;
                waiting.pop_front();
            }
        }
        let rate = total as f64 / 1e6 / begin.elapsed().as_secs_f64();
        (rate, self.store.figures().syncs - syncs)
    }
}

/// Appends to a new file, or writes over one that is there.
fn bare(path: &Path, total: usize, over: bool) -> f64 {
    let bytes = vec![b'x'; CHUNK];
    let file = File::options().create(true).truncate(!over).write(true).open(path).unwrap();
    let begin = Clock::now();
    for chunk in 0..total / CHUNK {
        file.write_all_at(&bytes, (chunk * CHUNK) as u64).unwrap();
        file.sync_data().unwrap();
    }
    total as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let directory = words.next().unwrap_or_else(|| "target/append".to_owned());
    let total = words.next().map_or(256, |word| word.parse::<usize>().unwrap()) << 20;
    let directory = Path::new(&directory);
    fs::create_dir_all(directory).unwrap();
    let path = directory.join("bare");
    let say = |text: String| {
        let _ = writeln!(std::io::stdout(), "{text}");
    };
    let mut bench = Bench::new(directory);
    for round in 1..=3 {
        let append = bare(&path, total, false);
        let over = bare(&path, total, true);
        say(format!(
            "{round}: bare 64 KiB + fdatasync: append {append:.0} MB/s, over {over:.0} MB/s"
        ));
        for (name, window) in [("64 KiB in turn", CHUNK), ("1 MiB window", 1 << 20)] {
            let (rate, syncs) = bench.run(total, window, window == CHUNK);
            say(format!(
                "{round}: store, {name}: {rate:.0} MB/s of bodies, {syncs} syncs; {:.2} of append, {:.2} of over",
                rate / append,
                rate / over
            ));
        }
    }
    drop(bench);
    fs::remove_dir_all(directory).unwrap();
}
