//! Worlds in which a behaviour is looked at: clients on one shard, and clients on different ones.

use lepus_sim::{Channel, Client, Options, StoreOptions, World};

/// The channel number on which a client keeps an exclusive queue to stay on its shard.
const ANCHOR_CHANNEL: u16 = 2000;

/// A world with a place for two kinds of clients.
pub struct Stage {
    pub world: World,
    near: u16,
    far: u16,
    /// Clients keep something that ties them to their shard, so that they are not handed over.
    anchored: bool,
}

impl Stage {
    /// A client on the shard where a test mostly declares things.
    pub fn near_client(&self) -> Client {
        self.place(self.near)
    }

    /// A client that lives on another shard, where there is one.
    pub fn far_client(&self) -> Client {
        self.place(self.far)
    }

    /// A channel of a new [`Stage::near_client`].
    pub fn near(&self) -> Channel {
        self.near_client().channel()
    }

    /// A channel of a new [`Stage::far_client`].
    pub fn far(&self) -> Channel {
        self.far_client().channel()
    }

    /// One channel near and one far.
    pub fn pair(&self) -> (Channel, Channel) {
        (self.near(), self.far())
    }

    fn place(&self, shard: u16) -> Client {
        let client = self.world.connect(shard);
        self.anchor(&client);
        client
    }

    /// Ties a client to its shard, where clients of this stage are tied.
    pub fn anchor(&self, client: &Client) {
        if self.anchored {
            let _ = client.channel_number(ANCHOR_CHANNEL).declare_exclusive("");
        }
    }
}

/// Plays on all stages.
pub fn everywhere(play: impl Fn(&Stage)) {
    everywhere_with(&Options::default(), play);
}

/// Plays on all stages of worlds with these options; the number of shards is the stage's.
pub fn everywhere_with(options: &Options, play: impl Fn(&Stage)) {
    // On a disk everything that waits goes to the log and comes back from there.
    let stages = [
        (1, 0, 0, false, false),
        (2, 0, 1, true, false),
        (2, 1, 0, true, false),
        (3, 1, 2, true, false),
        (2, 0, 1, false, false),
        (1, 0, 0, false, true),
        (2, 1, 0, true, true),
    ];
    for (shards, near, far, anchored, on_disk) in stages {
        let told = Told(format!(
            "{shards} shards, near {near}, far {far}, anchored {anchored}, on disk {on_disk}"
        ));
        let mut options = Options { shards, ..options.clone() };
        if on_disk {
            options.store = Some(StoreOptions::default());
            options.limits.spill_bytes = 0;
        }
        let world = World::with(options);
        let stage = Stage { world, near, far, anchored };
        play(&stage);
        assert_eq!(stage.world.leaks(), [""; 0]);
        // Whatever a test leaves open ends well too.
        stage.world.shut_down();
        stage.world.advance(60_000);
        assert_eq!(stage.world.leaks(), [""; 0]);
        drop(told);
    }
}

/// How a run ends, before the next begins on the same disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Stop,
    /// The process is killed.
    Kill,
    /// Power fails.
    Crash,
}

impl Ending {
    /// Ends the run and begins the next, with as many shards.
    pub fn now(self, world: &World) {
        let shards = world.shards();
        match self {
            Ending::Stop => world.stop(),
            Ending::Kill => world.kill(),
            Ending::Crash => world.crash(),
        }
        world.start_again(shards);
    }
}

/// Plays in worlds with a disk, which end in each way.
pub fn on_disk(play: impl Fn(&World, Ending)) {
    for shards in [1, 2] {
        for ending in [Ending::Stop, Ending::Kill, Ending::Crash] {
            let told = Told(format!("{shards} shards that end by {ending:?}"));
            let world = World::on_disk(shards);
            play(&world, ending);
            world.stop();
            drop(told);
        }
    }
}

/// Tells which stage it was when a test fails.
struct Told(String);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on the stage with {}", self.0);
        }
    }
}
