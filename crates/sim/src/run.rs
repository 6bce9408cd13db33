//! One run of the simulator: everything that happens follows from its seed.
//!
//! # Fault model
//! - Clients cut bytes anywhere, stop reading, break off, leave questions open, say what is wrong;
//!   operators close connections. Shards run in any order, time jumps.
//! - The disk is that of [`lepus_store::simulation`]: what is not synced is torn at sectors,
//!   reordered and lost when the power fails; operations end in any order, late, or not at all;
//!   reads, writes and syncs fail; space runs out for a while and comes back.
//! - The process ends at any moment, in order, by a signal or with the power, and another one with
//!   any number of shards starts on the same disk. While none runs, bits of old segments flip.
//! - In a share of the seeds there are eight shards, and the balancer sends connections from one to
//!   another at any moment.
//! - In a share of the seeds from a million on clients read a few bytes at a time and answer late; in
//!   another logs have a few segments at most; in another all operations of a kind fail for 0.1 to 5 s of
//!   virtual time, or for ever: reads, writes, new and removed files, syncs of directories, whatever needs a
//!   descriptor; for lack of room or means, or otherwise; in
//!   another bits flip in headers, roots, checkpoints, the index and the definitions while no process runs.
//!
//! What must hold is said in the oracle: what was confirmed and persistent is there, in order, and
//! says when it comes again; what was settled a second before stays away; commits are whole in each
//! log; what is transient is gone; definitions and accounts that were answered are there. What cannot
//! be read now costs nothing: it is waited for.

mod damage;
mod life;
mod operator;
mod policies;
mod question;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use lepus_amqp::client::ClientOptions;
use lepus_amqp::method::{exchange, queue};
use lepus_amqp::table::Table;
use lepus_base::{ConnectionId, Rng};
use lepus_broker::queue::Recorder;

use crate::actor::{Actor, Stage, Standing, Verdict};
use crate::channel::Channel;
use crate::figures;
use crate::inbox::Message;
use crate::oracle::{Arrival, CopyId, Oracle, Taking};
use crate::peer::Peer;
use crate::plan::{Kind, Plan};
use crate::routing::{self, Destination, Rule};
use crate::run::life::Lives;
use crate::run::operator::Operator;
use crate::run::policies::Policies;
use crate::run::question::LISTS;
use crate::shards::Shards;
use crate::world::{State, World};

/// Lines of the trace that are kept unless all are asked for.
const TRACE_LINES_MAX: usize = 80;
/// After so long deliveries that wait for their acknowledgement have been looked at, in milliseconds.
const LOOKED_AT_MILLIS: u64 = 31_000;
/// Bytes that a client reads at a time that reads in a trickle.
const TRICKLE_BYTES_MAX: u64 = 60;
/// Longer than it takes until a log without room has tried to make some, in milliseconds.
const ROOM_MILLIS: u64 = 2000;
/// Longer than a write waits for more to gather.
const GATHERING: std::time::Duration = std::time::Duration::from_millis(10);

thread_local! {
    /// What happened last on this thread, for a panic to tell.
    static TRACE: RefCell<Trace> = RefCell::default();
}

#[derive(Default)]
struct Trace {
    seed: u64,
    prints: bool,
    lines: VecDeque<String>,
}

fn trace(line: String) {
    TRACE.with_borrow_mut(|trace| {
        if trace.prints {
            lepus_console::say(&line);
        }
        if trace.lines.len() == TRACE_LINES_MAX {
            trace.lines.pop_front();
        }
        trace.lines.push_back(line);
    });
}
/// One seed in so many has moves.
const SEEDS_PER_MOVES: u64 = 4;
/// Shards of a run with moves.
const SHARDS_OF_MOVES: u16 = 8;
/// After so many things that happen, on average, a connection or a queue is sent to another shard.
const STEPS_PER_MOVE: u64 = 15;

/// After so many things that happen, on average, everybody listens until nothing is left to say.
const STEPS_PER_CALM: u64 = 500;

/// Of the seeds from here on one in so many is under strain. Those below keep the plans that tests rely
/// on.
const FIRST_STRAINED: u64 = 1_000_000;
const SEEDS_PER_STRAIN: u64 = 2;

/// Whether a seed has logs with few segments, clients that read in a trickle, or a disk that fails for a
/// while. What a log did not take is wrong then, unless a log has stopped.
fn is_strained(seed: u64) -> bool {
    seed >= FIRST_STRAINED && seed.is_multiple_of(SEEDS_PER_STRAIN)
}

/// How many bindings go in one step, apart from everything else that a seed decides: so few for some of
/// the seeds from [`FIRST_STRAINED`] on that whatever is deleted goes in slices.
fn slice_of(seed: u64) -> Option<usize> {
    let slice = Rng::new(seed ^ 0x0073_6c69_6365).below(3) as usize;
    (seed >= FIRST_STRAINED && slice > 0).then_some(slice)
}

/// Decides about moves, apart from everything else that a seed decides.
fn moves_of(seed: u64) -> Option<Rng> {
    let mut rng = Rng::new(seed ^ 0x006d_6f76_6573);
    rng.chance(1, SEEDS_PER_MOVES).then_some(rng)
}

/// The seed that runs on this thread and what happened in it last.
#[must_use]
pub fn last_words() -> (u64, Vec<String>) {
    TRACE.with_borrow(|trace| (trace.seed, trace.lines.iter().cloned().collect()))
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages published.
    pub published: u64,
    /// Deliveries that clients received.
    pub delivered: u64,
    /// Duty cycles of all shards.
    pub turns: u64,
    /// Connections that went to another shard.
    pub handed_over: u64,
    /// Those of them that the balancer sent.
    pub moved: u64,
    /// Queues that the balancer sent to another shard.
    pub queues_moved: u64,
    /// Runs with a disk.
    pub disks: u64,
    /// Processes that ended, in whatever way, and were followed by another.
    pub restarts: u64,
    /// Policies that were set or cleared.
    pub policies: u64,
}

impl Figures {
    /// Adds another run's.
    pub fn add(&mut self, other: Figures) {
        self.published += other.published;
        self.delivered += other.delivered;
        self.turns += other.turns;
        self.handed_over += other.handed_over;
        self.moved += other.moved;
        self.queues_moved += other.queues_moved;
        self.disks += other.disks;
        self.restarts += other.restarts;
        self.policies += other.policies;
    }
}

/// Runs one seed.
///
/// # Errors
/// The first thing that was not as it must be.
pub fn run(seed: u64, prints: bool) -> Result<Figures, String> {
    run_with(seed, prints, moves_of(seed), None)
}

/// The same, and `recorder` takes down what happens to queues.
///
/// # Errors
/// The first thing that was not as it must be.
pub fn run_recorded(
    seed: u64,
    prints: bool,
    recorder: Arc<dyn Recorder>,
) -> Result<Figures, String> {
    run_with(seed, prints, moves_of(seed), Some(recorder))
}

/// The same with moves, whatever the seed says about them.
///
/// # Errors
/// The first thing that was not as it must be.
pub fn run_on_the_move(seed: u64) -> Result<Figures, String> {
    run_with(seed, false, Some(Rng::new(!seed)), None)
}

fn run_with(
    seed: u64,
    prints: bool,
    moves: Option<Rng>,
    recorder: Option<Arc<dyn Recorder>>,
) -> Result<Figures, String> {
    TRACE.set(Trace { seed, prints, lines: VecDeque::new() });
    let mut rng = Rng::new(seed);
    let mut plan = Plan::new(&mut rng);
    plan.extend(&mut Rng::new(seed ^ 0x006c_6174_6572));
    let mut strain = Rng::new(seed ^ 0x0000_6275_7264_656e);
    if is_strained(seed) {
        plan.strain(&mut strain);
    }
    if let Some(slice) = slice_of(seed) {
        plan.options.limits.bindings_at_once = slice;
    }
    if moves.is_some() {
        plan.options.shards = SHARDS_OF_MOVES;
    }
    trace(format!("{plan:?}"));
    plan.options.recorder = recorder;
    let world = World::with(plan.options.clone());
    prepare(&world, &plan, |_| true);
    let mut run = Run {
        shards: into_shards(world),
        peers: Vec::new(),
        actors: Vec::new(),
        oracle: Oracle::default(),
        channels: 0,
        lives: Lives::default(),
        operator: Operator::new(seed),
        policies: Policies::of(seed),
        plan,
        rng,
        strain,
        moves,
    };
    run.begin_life();
    for name in 0..run.plan.actors {
        run.connect(name);
    }
    for _ in 0..run.plan.steps {
        run.step()?;
    }
    run.finish()
}

/// The shards of a world that nobody else knows.
fn into_shards(world: World) -> Shards {
    let Ok(state) = Rc::try_unwrap(world.0) else { unreachable!("nobody else knows the world") };
    state.into_inner().shards
}

/// Declares queues and exchanges in peace: those that are missing, as `is_missing` says of what is
/// durable.
fn prepare(world: &World, plan: &Plan, is_missing: impl Fn(bool) -> bool) {
    let shards = world.shards();
    for queue in &plan.queues {
        if matches!(queue.kind, Kind::Volatile(_)) || !is_missing(queue.durable) {
            continue;
        }
        let arguments = queue.arguments().to_bytes();
        let channel = world.channel(queue.declared_on % shards);
        channel.declare_method(queue::Declare {
            queue: &queue.name,
            durable: queue.durable,
            arguments: arguments.as_ref(),
            ..Default::default()
        });
        channel.client().close();
    }
    let channel = world.channel(0);
    for exchange in plan.exchanges.iter().filter(|exchange| is_missing(exchange.durable)) {
        let mut arguments = Table::new();
        if let Some(alternate) = exchange.alternate {
            arguments.insert("alternate-exchange", plan.exchanges[alternate].name.as_str());
        }
        if exchange.rule == (Rule::Hash { by_header: true }) {
            arguments.insert("hash-header", routing::HASHED_HEADER);
        }
        let mut kind = exchange.rule.name();
        if exchange.delays {
            arguments.insert("x-delayed-type", kind);
            kind = "x-delayed-message";
        }
        let arguments = arguments.to_bytes();
        channel.exchange_method(exchange::Declare {
            exchange: &exchange.name,
            r#type: kind,
            durable: exchange.durable,
            arguments: arguments.as_ref(),
            ..Default::default()
        });
    }
    for exchange in &plan.exchanges {
        for binding in &exchange.bindings {
            match binding.to {
                Destination::Queue(queue) => {
                    let queue = &plan.queues[queue];
                    if is_missing(queue.durable && exchange.durable) {
                        let arguments = binding.arguments.clone();
                        channel.bind_with(&queue.name, &exchange.name, &binding.key, arguments);
                    }
                }
                Destination::Exchange(next) => {
                    let next = &plan.exchanges[next];
                    if is_missing(next.durable && exchange.durable) {
                        let arguments = binding.arguments.to_bytes();
                        let bind = exchange::Bind {
                            destination: &next.name,
                            source: &exchange.name,
                            routing_key: &binding.key,
                            no_wait: false,
                            arguments: arguments.as_ref(),
                        };
                        channel.call_for(bind, "exchange.bind-ok");
                    }
                }
            }
        }
    }
    channel.client().close();
}

struct Run {
    shards: Shards,
    peers: Vec<Peer>,
    actors: Vec<Actor>,
    oracle: Oracle,
    /// Channel incarnations so far.
    channels: u64,
    lives: Lives,
    operator: Operator,
    policies: Policies,
    plan: Plan,
    rng: Rng,
    /// Decides about what came last to the plans.
    strain: Rng,
    /// Decides about moves, in runs that have some.
    moves: Option<Rng>,
}

impl Run {
    /// Client `name` connects, for the first time or again.
    fn connect(&mut self, name: usize) {
        let shard = self.rng.below(self.shards.len() as u64) as usize;
        let wire = self.shards.connect(shard, None);
        let id = self.shards.last_connection();
        let polite = self.rng.chance(1, 3);
        let heartbeat = u16::from(!polite && self.plan.faults && self.rng.chance(1, 4));
        let options = ClientOptions {
            heartbeat,
            frame_max: [0, 4096, 8192][self.rng.below(3) as usize],
            ..ClientOptions::default()
        };
        let mut peer = Peer::new(id, wire, Some(options), self.shards.now().instant);
        peer.heard = Some(VecDeque::new());
        trace(format!("client {name} connects to shard {shard} as connection {}", id.0));
        let mut actor = Actor::new(name, polite, heartbeat > 0, &mut self.rng);
        actor.trickles = self.plan.trickles && self.strain.chance(1, 2);
        if name < self.peers.len() {
            self.peers[name].wire.cut();
            self.peers[name] = peer;
            self.actors[name] = actor;
        } else {
            self.peers.push(peer);
            self.actors.push(actor);
        }
    }

    /// One thing happens.
    fn step(&mut self) -> Verdict {
        self.move_someone();
        self.policies.step(&self.plan, &self.shards)?;
        if self.rng.chance(1, STEPS_PER_CALM) {
            return self.calm();
        }
        let client = self.rng.below(self.actors.len() as u64) as usize;
        let disk_share = if self.plan.disk.is_some() { 30 } else { 0 };
        match self.rng.below(100 + disk_share) {
            100.. => self.disk_step()?,
            0..45 => self.turn_one(),
            45..60 => self.carry_up(client),
            60..78 => self.carry_down(client)?,
            78..96 => self.act(client),
            96..98 => self.pass_time()?,
            _ if self.plan.faults => self.disturb(client),
            _ => {}
        }
        Ok(())
    }

    /// The balancer sends a connection or a queue to another shard, if it is its time.
    fn move_someone(&mut self) {
        let Some(rng) = &mut self.moves else { return };
        if !rng.chance(1, STEPS_PER_MOVE) {
            return;
        }
        if rng.chance(1, 3) {
            let place = rng.below(self.plan.queues.len() as u64) as usize;
            let shard = rng.below(self.shards.len() as u64) as u16;
            let name = &self.plan.queues[place].name;
            if self.shards.move_queue("/", name, shard) {
                trace(format!("the balancer sends queue {name} to shard {shard}"));
            }
            return;
        }
        let client = rng.below(self.peers.len() as u64) as usize;
        let mut shard = rng.below(self.shards.len() as u64) as u16;
        if rng.chance(1, 2) {
            // Where a queue is, consumers may go along.
            let place = rng.below(self.plan.queues.len() as u64) as usize;
            let home = self.shards.home_of("/", &self.plan.queues[place].name);
            shard = home.map_or(shard, |home| home.0);
        }
        if self.shards.move_connection(self.peers[client].id, shard) {
            trace(format!("the balancer sends client {client} to shard {shard}"));
        }
    }

    /// Lets moves come to their end, one way or the other.
    fn end_moves(&mut self) -> Verdict {
        if self.moves.take().is_none() {
            return Ok(());
        }
        for _ in 0..5 {
            self.settle()?;
            let now = self.shards.now().instant;
            self.shards.set_time(now + std::time::Duration::from_millis(500));
        }
        self.settle()
    }

    fn turn_one(&mut self) {
        let runnable: Vec<usize> =
            (0..self.shards.len()).filter(|&shard| self.shards.is_runnable(shard)).collect();
        if !runnable.is_empty() {
            self.shards.turn(runnable[self.rng.below(runnable.len() as u64) as usize]);
        }
    }

    fn carry_up(&mut self, client: usize) {
        let limit = self.some_bytes();
        let now = self.shards.now().instant;
        self.peers[client].on_timeout(now);
        self.peers[client].send(limit, now);
    }

    fn carry_down(&mut self, client: usize) -> Verdict {
        let limit = match self.actors[client].trickles {
            true => 1 + self.strain.below(TRICKLE_BYTES_MAX) as usize,
            false => self.some_bytes(),
        };
        let now = self.shards.now().instant;
        self.peers[client].receive(limit, now);
        self.listen(client)
    }

    fn listen(&mut self, client: usize) -> Verdict {
        self.look_at_disk();
        if let Some(text) = self.shards.overlong.take() {
            return Err(text);
        }
        if self.shards.definitions_failed() {
            self.actors.iter_mut().for_each(|actor| actor.fear_refusal(&mut self.oracle));
        }
        let (peer, actor) = (&mut self.peers[client], &mut self.actors[client]);
        actor.listen(peer, &self.plan, &mut self.oracle, &mut trace)
    }

    fn some_bytes(&mut self) -> usize {
        match self.rng.below(4) {
            0 => 1 + self.rng.below(12) as usize,
            1 => 1 + self.rng.below(1000) as usize,
            _ => usize::MAX,
        }
    }

    fn act(&mut self, client: usize) {
        if self.actors[client].standing == Standing::Gone {
            self.connect(client);
            return;
        }
        if self.peers[client].output.len() > 100_000 {
            return;
        }
        let mut stage = Stage {
            rng: &mut self.rng,
            plan: &self.plan,
            oracle: &mut self.oracle,
            channels: &mut self.channels,
            faults: self.plan.faults,
        };
        let text = self.actors[client].act(&mut self.peers[client], &mut stage);
        if !text.is_empty() {
            trace(text);
        }
    }

    fn pass_time(&mut self) -> Verdict {
        if self.plan.disk.is_some() && self.rng.chance(1, 40) {
            return self.rest();
        }
        let millis = match self.plan.times_out && self.rng.chance(1, 20) {
            true => LOOKED_AT_MILLIS,
            false if self.rng.chance(1, 50) => 1500,
            false => self.rng.below(30),
        };
        let now = self.shards.now().instant;
        self.shards.set_time(now + std::time::Duration::from_millis(millis));
        trace(format!("{millis} ms pass"));
        Ok(())
    }

    /// A fault: a client reads no more or again, its connection breaks, it leaves.
    fn disturb(&mut self, client: usize) {
        match self.rng.below(10) {
            0..5 => {
                let peer = &mut self.peers[client];
                peer.reading = !peer.reading;
                trace(format!("client {client} reads: {}", peer.reading));
            }
            6 | 7 if self.actors[client].may_break() => {
                trace(format!("client {client} breaks off"));
                self.peers[client].wire.cut();
                self.peers[client].ended = true;
                self.actors[client].gone(&mut self.oracle);
            }
            5 if self.actors[client].may_break() => {
                trace(format!("an operator closes the connection of client {client}"));
                self.actors[client].expel(&mut self.oracle);
                self.shards.close_connection(self.peers[client].id);
            }
            8 if self.actors[client].may_break() => {
                trace(format!("client {client} hangs up"));
                self.peers[client].wire.end();
                self.peers[client].ended = true;
                self.actors[client].gone(&mut self.oracle);
            }
            _ => {
                if self.actors[client].may_break() && self.actors[client].standing == Standing::Open
                {
                    trace(format!("client {client} leaves"));
                    self.actors[client].leave(
                        self.shards.now().instant,
                        &mut self.peers[client],
                        &mut self.oracle,
                    );
                }
            }
        }
    }

    /// Runs everything until it is quiet.
    fn settle(&mut self) -> Verdict {
        for _ in 0..1_000_000 {
            let now = self.shards.now().instant;
            let mut quiet = true;
            for shard in 0..self.shards.len() {
                if self.shards.is_runnable(shard) {
                    self.shards.turn(shard);
                    quiet = false;
                }
            }
            for client in 0..self.peers.len() {
                quiet &= !self.peers[client].on_timeout(now);
                let received = self.peers[client].receive(usize::MAX, now);
                self.listen(client)?;
                let sent = self.peers[client].send(usize::MAX, now);
                quiet &= !(received || sent);
            }
            quiet &= !self.shards.carry_out();
            if quiet {
                return self.check_quiet();
            }
        }
        Err("the shards do not come to rest".into())
    }

    /// While nothing is to be done nobody waits for what is over, what is counted is there, and questions are
    /// answered.
    fn check_quiet(&mut self) -> Verdict {
        self.operator.check_asked()?;
        policies::check_settings(&self.shards)?;
        let mut wrong = self.shards.overdue();
        wrong.extend(self.shards.miscounted());
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// The same, with time for writes that wait some milliseconds for more to gather.
    fn settle_in_time(&mut self) -> Verdict {
        for _ in 0..3 {
            self.settle()?;
            let now = self.shards.now().instant;
            self.shards.set_time(now + GATHERING);
        }
        self.settle()
    }

    /// Everybody reads, and answers what it owes.
    fn wake_clients(&mut self) {
        for (peer, actor) in self.peers.iter_mut().zip(&mut self.actors) {
            peer.reading = true;
            actor.is_slow = false;
            actor.answer_closes(peer);
        }
    }

    /// In the middle of it all everybody reads, and the disk is quick for once: then nothing waits
    /// any longer than a write takes, unless memory or the disk is short or something moves.
    fn calm(&mut self) -> Verdict {
        trace("everybody listens".into());
        self.wake_clients();
        let takes = self.shards.disk.as_mut().map(|disk| {
            disk.hurry();
            std::mem::take(&mut disk.takes)
        });
        let moves = |broker: &lepus_broker::Broker| {
            let mut connections = broker.connections.iter();
            broker.homes.has_migrations()
                || connections.any(|(_, connection)| {
                    connection.paused.has(lepus_broker::backpressure::Cause::Move)
                })
        };
        let moved = self.shards.brokers().any(moves);
        self.settle_in_time()?;
        if moved {
            // What waited for the end of a move is written from there on.
            self.settle_in_time()?;
        }
        if let (Some(disk), Some(takes)) = (&mut self.shards.disk, takes) {
            disk.takes = takes;
        }
        self.operator.check_some_lists(&mut self.shards)?;
        let is_short = |broker: &lepus_broker::Broker| {
            let waiting = &broker.shard.backpressure;
            waiting.blocked().next().is_some() || waiting.is_short_elsewhere()
        };
        if self.is_full()
            || self.shards.has_disk_trouble()
            || self.shards.waits_for_reads()
            || self.shards.waits_for_writes()
            || self.shards.brokers().any(|b| is_short(b) || moves(b))
        {
            return Ok(());
        }
        self.check_excess()?;
        self.check_answered()?;
        self.policies.check_done(&self.plan, &self.shards)?;
        for actor in self.actors.iter().filter(|actor| actor.standing == Standing::Open) {
            if let Some(text) = actor.unanswered() {
                return Err(format!("{text}, though all listen; {}", self.describe(actor.name)));
            }
        }
        Ok(())
    }

    /// Publishers that wait for memory, and what waits for room in a log, go on when queues are emptied.
    fn relieve(&mut self) -> Verdict {
        for attempt in 0..20 {
            if attempt == 10 && self.is_log_small() {
                self.give_logs_more()?;
            }
            // Who is about to close does not listen to what it is told.
            let held: Vec<ConnectionId> = (self.shards.brokers())
                .flat_map(|broker| broker.shard.backpressure.blocked())
                .collect();
            let waits = |peer: &Peer| peer.blocked.is_some() || held.contains(&peer.id);
            let lacks_room = self.has_little_room() && self.shards.waits_for_room();
            // What these say is not heard before their publishes have room.
            let unheard: Vec<ConnectionId> = (self.shards.brokers())
                .flat_map(|broker| broker.connections.iter())
                .filter(|(_, connection)| {
                    connection.open_channels().any(|it| !it.parked.is_empty())
                })
                .map(|(_, connection)| connection.id)
                .collect();
            if !lacks_room && !self.peers.iter().any(|peer| waits(peer) && !peer.ended) {
                return Ok(());
            }
            // Who waits with its publishes cannot acknowledge, either: what it said is in order. What a
            // transaction has taken is nobody else's, and stays in the log.
            for (peer, actor) in self.peers.iter_mut().zip(&mut self.actors) {
                let hinders =
                    waits(peer) || lacks_room && (actor.holds_some() || unheard.contains(&peer.id));
                if attempt == 3 && hinders && actor.standing != Standing::Gone {
                    trace(format!("client {} gives up waiting for memory or room", actor.name));
                    self.oracle.lossy |= actor.is_careful();
                    peer.wire.cut();
                    peer.ended = true;
                    actor.gone(&mut self.oracle);
                }
            }
            self.settle()?;
            trace("queues are emptied for those who wait for memory or room".into());
            for (client, actor) in self.actors.iter_mut().enumerate() {
                actor.settle_all(&mut self.peers[client], &self.plan, &mut self.oracle);
            }
            self.settle()?;
            let shards = std::mem::replace(&mut self.shards, Shards::none());
            let world = World(Rc::new(RefCell::new(State::new(shards))));
            for place in 0..self.plan.queues.len() {
                take_all(&world, &self.plan, &mut self.oracle, place)?;
            }
            self.shards = into_shards(world);
            self.recover_space()?;
            self.settle()?;
            self.oracle.check_presumed()?;
        }
        let memory = |broker: &lepus_broker::Broker| {
            let (shard, messages) = (&broker.shard, broker.shard.pool.len());
            format!(
                "{} bytes in use, {messages} bodies of {} bytes, {} dead letters on their way",
                shard.memory(),
                shard.pool.live(),
                broker.homes.dead_letters().count()
            )
        };
        let shards: Vec<String> = self.shards.brokers().map(memory).collect();
        let logs: Vec<_> = self.shards.brokers().map(|broker| broker.journal.figures()).collect();
        Err(format!("there is never enough memory, or room in the logs: {shards:?}, {logs:?}"))
    }

    /// What a shard keeps is in proportion to what lives on it.
    fn check_excess(&self) -> Verdict {
        figures::excess(&self.shards, figures::QUEUE_BYTES_MAX).map_or(Ok(()), Err)
    }

    /// A client's connection as the broker sees it.
    fn describe(&self, client: usize) -> String {
        let id = self.peers[client].id;
        let found = self
            .shards
            .brokers()
            .flat_map(|broker| broker.connections.iter())
            .find(|(_, connection)| connection.id == id);
        match found {
            Some((_, connection)) => figures::describe(connection),
            None => "the broker does not know the connection".into(),
        }
    }

    /// The end: every question answered, everyone gone, every message where it should be.
    fn finish(mut self) -> Result<Figures, String> {
        trace("the end begins".into());
        self.heal()?;
        self.wake_clients();
        self.end_moves()?;
        self.settle_in_time()?;
        self.relieve()?;
        self.oracle.check_presumed()?;
        self.check_answered()?;
        for actor in &self.actors {
            if let Some(text) = actor.unanswered() {
                return Err(format!("{text}; {}", self.describe(actor.name)));
            }
        }
        for client in 0..self.actors.len() {
            if self.actors[client].standing == Standing::Open {
                self.actors[client].prepare_to_leave(&mut self.peers[client]);
            }
        }
        self.settle_in_time()?;
        for client in 0..self.actors.len() {
            let (actor, peer) = (&mut self.actors[client], &mut self.peers[client]);
            if actor.standing != Standing::Open {
                continue;
            }
            if actor.may_break() && self.rng.chance(1, 2) {
                peer.wire.cut();
                peer.ended = true;
                actor.gone(&mut self.oracle);
            } else {
                actor.leave(self.shards.now().instant, peer, &mut self.oracle);
            }
        }
        self.settle_in_time()?;
        if let Some(actor) = self.actors.iter().find(|actor| actor.standing != Standing::Gone) {
            let name = actor.name;
            return Err(format!("client {name} cannot leave: {}", self.describe(name)));
        }
        self.release_delayed()?;
        self.last_life()?;
        self.release_delayed()?;
        self.relieve()?;
        self.check_accounts()?;
        self.policies.check(&self.plan, &self.shards)?;
        self.operator.check_lists(&mut self.shards, 0..LISTS)?;
        self.leave_idle()?;
        let (logs, has_little_room) = (self.logs(), self.has_little_room());
        self.count();
        let world = World(Rc::new(RefCell::new(State::new(self.shards))));
        healthy(&world)?;
        drain(&world, &self.plan, &mut self.oracle, &mut self.rng, has_little_room)?;
        let missing = self.oracle.verdict(&self.plan.queues)?;
        if missing > 0 {
            // What a reader finds damaged is told with the next answer of the disk.
            world.advance(2000);
        }
        if missing > 0 && self.lives.reports + reports(&world) == 0 {
            return Err(format!("{missing} damaged messages are gone without a word"));
        }
        self.oracle.check_commits(&self.plan.queues, &logs)?;
        Ok(Figures {
            published: self.oracle.messages.len() as u64,
            delivered: self.oracle.deliveries,
            disks: u64::from(self.plan.disk.is_some()),
            policies: self.policies.changed(),
            ..self.lives.figures
        })
    }
}

/// Damages that were reported since the log was read last.
fn reports(world: &World) -> u64 {
    world.events().iter().filter(|event| life::is_damage(event.kind)).count() as u64
}

fn healthy(world: &World) -> Verdict {
    if let Some(text) = figures::excess(&world.0.borrow().shards, figures::IDLE_QUEUE_BYTES_MAX) {
        return Err(text);
    }
    let leaks = world.leaks();
    if leaks.is_empty() { Ok(()) } else { Err(leaks.join("; ")) }
}

/// Takes what is ready in a queue out of it for good.
fn take_all(world: &World, plan: &Plan, oracle: &mut Oracle, place: usize) -> Verdict {
    let queue = &plan.queues[place];
    let channel = world.channel(queue.declared_on % world.shards());
    if !queue.is_stable() {
        channel.send(queue::Purge { queue: &queue.name, no_wait: false });
        channel.client().close();
        return Ok(());
    }
    channel.consume_no_ack(&queue.name, "relief");
    channel.cancel("relief");
    for message in channel.deliveries() {
        receive(plan, oracle, place, &message, Taking::ForGood)?;
    }
    leave(&channel);
    Ok(())
}

fn receive(
    plan: &Plan,
    oracle: &mut Oracle,
    place: usize,
    message: &Message,
    taking: Taking,
) -> Result<CopyId, String> {
    let properties = message.properties.to_bytes();
    let arrival = Arrival {
        queue: place,
        redelivered: message.redelivered,
        exchange: &message.exchange,
        key: &message.key,
        properties: &properties,
        body: &message.body,
    };
    oracle.receive(&plan.queues, arrival, taking)
}

/// How often a drained queue waits for dead letters that come late.
const LATE_MAX: u32 = 20;

/// Takes everything out of the queues that must be there, and deletes the others.
fn drain(
    world: &World,
    plan: &Plan,
    oracle: &mut Oracle,
    rng: &mut Rng,
    has_little_room: bool,
) -> Verdict {
    // What has left the queues so far is out of the logs, too.
    let make_room = || {
        if has_little_room {
            world.advance(ROOM_MILLIS);
        }
    };
    // Dead letters may wait for room in a log that other queues fill: those are drained first.
    let all = || plan.queues.iter().enumerate();
    let (dead, others): (Vec<_>, Vec<_>) = all().partition(|(_, queue)| queue.kind == Kind::Dead);
    for (place, queue) in others.into_iter().chain(dead) {
        make_room();
        let shard = rng.below(u64::from(world.shards())) as u16;
        let channel = world.channel(shard);
        if !queue.is_stable() {
            channel.delete(&queue.name);
            channel.client().close();
            continue;
        }
        let figures = world.queue(&queue.name);
        if figures.unacked > 0 || figures.consumers > 0 {
            return Err(format!("{} is not at rest: {figures:?}", queue.name));
        }
        let (mut found, mut late) = (0, 0);
        channel.consume(&queue.name, "drain");
        loop {
            let messages = channel.deliveries();
            let Some(last) = messages.last() else {
                // Dead letters may wait for the room that what was drained before gives up.
                let waits = |shard| world.broker(shard, |broker| broker.view().waits_for_room());
                let is_late = queue.kind == Kind::Dead && (0..world.shards()).any(waits);
                if !has_little_room || !is_late {
                    break;
                }
                late += 1;
                if late > LATE_MAX {
                    return Err(format!(
                        "dead letters of {} wait for room for ever, {found} were found",
                        queue.name
                    ));
                }
                make_room();
                continue;
            };
            for message in &messages {
                let copy = receive(plan, oracle, place, message, Taking::Drains)?;
                oracle.copy(copy).found += 1;
                found += 1;
            }
            channel.ack_up_to(last.tag);
        }
        let left = world.queue(&queue.name).ready;
        if left > 0 {
            return Err(format!(
                "{} stands still: {left} messages ready, a consumer with room, and nothing under way",
                queue.name
            ));
        }
        // What has expired behind others goes to the dead-letter queue, which is drained next.
        let may_miss = queue.dead_letters() || !oracle.damaged.is_empty() || oracle.has_forgotten;
        // So do dead letters that get the room that others give up here.
        let may_get_more = late > 0 || has_little_room && queue.kind == Kind::Dead;
        if (found > figures.ready && !may_get_more) || (found < figures.ready && !may_miss) {
            return Err(format!(
                "{} messages counted in {}, {found} found",
                figures.ready, queue.name
            ));
        }
        leave(&channel);
    }
    make_room();
    world.advance(life::IDLE_MILLIS);
    healthy(world)
}

fn leave(channel: &Channel) {
    channel.client().close();
}
