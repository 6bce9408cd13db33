//! The world of a behaviour test: shards, clients and virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::Receiver;

use lepus_amqp::Method;
use lepus_amqp::method::channel;
use lepus_base::{Instant, Now};
use lepus_broker::counters::Counters;
use lepus_broker::directory::{Request, VhostRef};
use lepus_broker::outbox::Event;
use lepus_broker::query::SelectorRow;
use lepus_broker::refusal::Refusal;
use lepus_broker::user::{HashingAlgorithm, PasswordHash};
use lepus_broker::vhost::VhostMetadata;
use lepus_broker::{Answer, Broker, ConnectionTraffic, Query, QueueTraffic};

use crate::figures::{self, QueueFigures};
use crate::peer::Peer;
use crate::shards::{Options, Shards, StoreOptions};

/// Rounds after which a world that should come to rest is taken to be stuck in a circle.
const ROUNDS_MAX: usize = 2_000_000;

/// How long connections may take to end when a process stops, and its logs after them.
const STOP_MILLIS_MAX: u64 = 60_000;

/// A simulated broker and its clients. Cheap to clone; all clones are the same world.
///
/// Every call runs everything until it is quiet. Time passes only in [`World::advance`].
#[derive(Clone)]
pub struct World(pub(crate) Rc<RefCell<State>>);

pub(crate) struct State {
    pub(crate) shards: Shards,
    pub(crate) peers: Vec<Peer>,
    /// Nothing runs for the moment.
    pub(crate) held: bool,
}

impl State {
    /// Shards without clients.
    pub(crate) fn new(shards: Shards) -> State {
        State { shards, peers: Vec::new(), held: false }
    }

    /// Runs shards and clients in turn until nobody has anything to do.
    pub(crate) fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.round() {
                return;
            }
        }
        panic!("the world does not come to rest: some shard or client is busy for ever");
    }

    /// Gives every shard that has something to do one duty cycle, then every client its turn.
    /// Returns whether anything happened.
    pub(crate) fn round(&mut self) -> bool {
        self.round_without(&[])
    }

    fn round_without(&mut self, held_up: &[u16]) -> bool {
        let now = self.shards.now().instant;
        let mut busy = false;
        for shard in 0..self.shards.len() {
            if self.shards.is_runnable(shard) && !held_up.contains(&(shard as u16)) {
                self.shards.turn(shard);
                busy = true;
            }
        }
        for peer in &mut self.peers {
            busy |= peer.on_timeout(now);
            busy |= peer.receive(usize::MAX, now);
            busy |= peer.send(usize::MAX, now);
        }
        self.shards.carry_out() || busy
    }

    fn next_timeout(&self) -> Instant {
        let peers = self.peers.iter().map(Peer::next_timeout);
        peers.chain([self.shards.next_timeout()]).min().unwrap_or(Instant::NEVER)
    }

    /// Lets time pass until `done` or until `millis` are over; whatever becomes due meanwhile
    /// happens at its moment. Whether it was done.
    pub(crate) fn run_until(&mut self, millis: u64, done: impl Fn(&State) -> bool) -> bool {
        let end = self.shards.now().instant + core::time::Duration::from_millis(millis);
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let next = self.next_timeout();
            if next > end {
                self.shards.set_time(end);
                self.settle();
                return done(self);
            }
            self.shards.set_time(next);
        }
    }

    /// The process ends in order: its clients are told, then its logs are closed.
    pub(crate) fn stop(&mut self) {
        self.shards.shut_down();
        if !self.run_until(STOP_MILLIS_MAX, |state| state.shards.may_close()) {
            self.shards.cut_all();
        }
        self.shards.close();
        let is_closed = self.run_until(STOP_MILLIS_MAX, |state| state.shards.is_closed());
        assert!(is_closed, "the logs do not close");
        self.end(false);
    }

    /// The process is gone, and what its clients had not received with it.
    pub(crate) fn end(&mut self, power_fails: bool) {
        self.shards.end(power_fails);
        for peer in &mut self.peers {
            peer.wire.cut();
            peer.ended = true;
        }
    }
}

impl World {
    /// A world with `shards` shards, user `guest` (password `guest`) and vhost `/`.
    #[must_use]
    pub fn new(shards: u16) -> World {
        World::with(Options { shards, ..Options::default() })
    }

    /// The same with a disk.
    #[must_use]
    pub fn on_disk(shards: u16) -> World {
        let store = Some(StoreOptions::default());
        World::with(Options { shards, store, ..Options::default() })
    }

    /// The same with logs of so many segments at most.
    #[must_use]
    pub fn in_segments(shards: u16, segments_max: usize) -> World {
        let mut store = StoreOptions::default();
        store.template.segments_max = segments_max;
        World::with(Options { shards, store: Some(store), ..Options::default() })
    }

    /// A world with these options.
    #[must_use]
    pub fn with(options: Options) -> World {
        let mut state = State::new(Shards::new(&options));
        state.settle();
        World(Rc::new(RefCell::new(state)))
    }

    /// Runs everything until it is quiet. No time passes.
    pub fn settle(&self) {
        self.0.borrow_mut().settle();
    }

    /// Lets time pass; whatever becomes due meanwhile happens at its moment.
    pub fn advance(&self, millis: u64) {
        self.0.borrow_mut().run_until(millis, |_| false);
    }

    /// Gives every shard that has something to do one duty cycle, then every client its turn.
    /// Returns whether anything happened. For tests that count cycles; all other calls run until
    /// nothing happens any more.
    pub fn round(&self) -> bool {
        self.0.borrow_mut().round()
    }

    /// The same, where these shards do not get on.
    pub fn round_without(&self, held_up: &[u16]) {
        self.0.borrow_mut().round_without(held_up);
    }

    /// Lets time pass at once, without running anything.
    pub fn skip(&self, millis: u64) {
        let mut state = self.0.borrow_mut();
        let instant = state.shards.now().instant + core::time::Duration::from_millis(millis);
        state.shards.set_time(instant);
    }

    /// Whatever clients say inside waits until it is over, and longer: until the world is run by
    /// [`World::round`] or a later call.
    pub fn quietly<R>(&self, talk: impl FnOnce() -> R) -> R {
        self.0.borrow_mut().held = true;
        let result = talk();
        self.0.borrow_mut().held = false;
        result
    }

    /// The balancer sends a queue of the vhost `/` to another shard.
    pub fn move_queue(&self, name: &str, shard: u16) {
        self.move_queue_of("/", name, shard);
    }

    /// The balancer sends a queue to another shard.
    pub fn move_queue_of(&self, vhost: &str, name: &str, shard: u16) {
        let mut state = self.0.borrow_mut();
        state.shards.move_queue(vhost, name, shard);
        if !state.held {
            state.settle();
        }
    }

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.0.borrow().shards.len() as u16
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Now {
        self.0.borrow().shards.now()
    }

    /// An operator's change of the directory.
    ///
    /// # Errors
    /// The broker's refusal.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn request(&self, request: Request) -> Result<(), Refusal> {
        match self.ask(0, Query::Change(request)) {
            Answer::Changed(result) => result,
            other => panic!("a change is answered with {other:?}"),
        }
    }

    /// The same without running anything: the answer comes when it is there.
    #[must_use]
    pub fn begin(&self, request: Request) -> Receiver<Answer> {
        self.0.borrow().shards.ask(0, Query::Change(request))
    }

    /// Asks a shard without running anything: the answer comes when it is there.
    #[must_use]
    pub fn begin_asking(&self, shard: u16, query: Query) -> Receiver<Answer> {
        self.0.borrow().shards.ask(shard, query)
    }

    /// Asks a shard as an operator does.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn ask(&self, shard: u16, query: Query) -> Answer {
        let mut state = self.0.borrow_mut();
        let answer = state.shards.ask(shard, query);
        state.settle();
        answer.try_recv().expect("the shard answers")
    }

    fn must(&self, request: Request) {
        if let Err(refusal) = self.request(request) {
            panic!("an operator is refused: {:?} {}", refusal.kind, refusal.reply());
        }
    }

    /// Creates a vhost.
    pub fn add_vhost(&self, name: &str) {
        self.must(Request::CreateVhost { name: name.into(), metadata: VhostMetadata::default() });
    }

    /// Creates a user without permissions and tags.
    pub fn add_user(&self, name: &str, password: &str) {
        self.add_user_with_tags(name, password, &[]);
    }

    /// Creates a user with tags.
    pub fn add_user_with_tags(&self, name: &str, password: &str, tags: &[&str]) {
        let password = PasswordHash::new(HashingAlgorithm::Sha256, password.as_bytes(), [9; 4]);
        let tags = tags.iter().map(|&tag| tag.into()).collect();
        self.must(Request::PutUser { name: name.into(), password, tags });
    }

    /// Sets a user's permissions, three patterns.
    pub fn permit(&self, user: &str, vhost: &str, configure: &str, write: &str, read: &str) {
        self.must(Request::SetPermission {
            user: user.into(),
            vhost: VhostRef::Name(vhost.into()),
            configure: configure.into(),
            write: write.into(),
            read: read.into(),
        });
    }

    /// The server stops: clients are told.
    pub fn shut_down(&self) {
        let mut state = self.0.borrow_mut();
        state.shards.shut_down();
        state.settle();
    }

    /// Connections of a shard that did not end in order while the server stopped.
    #[must_use]
    pub fn cut(&self, shard: u16) -> usize {
        self.0.borrow().shards.cut(usize::from(shard))
    }

    /// A queue of vhost `/` as its home sees it.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn queue(&self, name: &str) -> QueueFigures {
        self.find_queue("/", name).unwrap_or_else(|| panic!("there is no queue '{name}'"))
    }

    /// A queue as its home sees it, if it exists.
    #[must_use]
    pub fn find_queue(&self, vhost: &str, name: &str) -> Option<QueueFigures> {
        figures::find_queue(&self.0.borrow().shards, vhost, name)
    }

    /// The distinct filters of the consumers of a queue of virtual host `/`, and how each gets on.
    ///
    /// # Panics
    /// When there is no such queue.
    #[must_use]
    pub fn selectors(&self, name: &str) -> Vec<SelectorRow> {
        let answer = self.begin_asking_selectors(name);
        self.settle();
        match answer.try_recv() {
            Ok(Answer::Selectors(rows)) => rows,
            other => panic!("a question about selectors is answered with {other:?}"),
        }
    }

    /// The same question without running anything: the answer comes when it is there.
    ///
    /// # Panics
    /// When there is no such queue.
    #[must_use]
    pub fn begin_asking_selectors(&self, name: &str) -> Receiver<Answer> {
        let id = self.broker(0, |broker| {
            let directory = &broker.directory;
            let vhost = directory.vhost("/").expect("the virtual host is there");
            directory.queue(vhost, name).expect("the queue is there").id
        });
        self.begin_asking(self.queue(name).home, Query::Selectors(id))
    }

    /// Looks into a shard's broker.
    pub fn broker<R>(&self, shard: u16, look: impl FnOnce(&Broker) -> R) -> R {
        look(self.0.borrow().shards.broker(usize::from(shard)))
    }

    /// Who on a shard talked to whom, and which of its queues got messages, since the last call.
    ///
    /// # Panics
    /// When the shard does not answer.
    #[must_use]
    pub fn traffic(&self, shard: u16) -> (Vec<ConnectionTraffic>, Vec<QueueTraffic>) {
        let all = usize::MAX;
        let query = Query::Traffic { connections_max: all, queues_max: all, with_idle: false };
        match self.ask(shard, query) {
            Answer::Traffic { connections, queues } => (connections, queues),
            other => panic!("a question about traffic is answered with {other:?}"),
        }
    }

    /// The brokers' counters, added up.
    #[must_use]
    pub fn counters(&self) -> Counters {
        figures::counters(&self.0.borrow().shards)
    }

    /// Log events since the last call.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.0.borrow().shards.events()
    }

    /// Duty cycles of a shard so far.
    #[must_use]
    pub fn turns(&self, shard: u16) -> u64 {
        self.0.borrow().shards.metrics(usize::from(shard)).cycles
    }

    /// Bytes that a shard has written to sockets so far.
    #[must_use]
    pub fn bytes_out(&self, shard: u16) -> u64 {
        self.0.borrow().shards.metrics(usize::from(shard)).bytes_out
    }

    /// Batches of mail that the shards' drivers sent, and sleeping peers that they woke, so far.
    #[must_use]
    pub fn mail_and_wakes(&self) -> (u64, u64) {
        let shards = &self.0.borrow().shards;
        let of = (0..shards.len()).map(|shard| shards.metrics(shard));
        of.fold((0, 0), |sum, of| (sum.0 + of.mail_out, sum.1 + of.wakes_sent))
    }

    /// Runs `shard` for one duty cycle and nobody else, whether it has something to do or not.
    pub fn turn(&self, shard: u16) {
        self.0.borrow_mut().shards.turn(usize::from(shard));
    }

    /// What is out of place in a world that should be at rest: connections without a client,
    /// frames parked for ever, bodies that belong to no message, figures that disagree. Empty
    /// when all is well.
    #[must_use]
    pub fn leaks(&self) -> Vec<String> {
        let state = self.0.borrow();
        let living: Vec<_> = state
            .peers
            .iter()
            .filter(|peer| !peer.wire.is_server_gone())
            .map(|peer| peer.id)
            .collect();
        figures::leaks(&state.shards, &living)
    }

    pub(crate) fn say(&self, peer: usize, channel: u16, method: &Method<'_>) {
        let mut state = self.0.borrow_mut();
        method.encode_frame(channel, &mut state.peers[peer].output);
        if matches!(method, Method::ChannelOpen(channel::Open {})) {
            state.peers[peer].inboxes.insert(channel, crate::inbox::Inbox::default());
        }
        state.settle_unless_corked(peer);
    }
}

impl State {
    pub(crate) fn settle_unless_corked(&mut self, peer: usize) {
        if !self.peers[peer].corked && !self.held {
            self.settle();
        }
    }
}
