//! What is known of a segment, and what of it lives.

/// A segment that holds something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    /// Its file, once it is written to.
    pub slot: Option<u32>,
    /// References to messages in it that live, persistent ones.
    pub live: u64,
    /// The same for transient ones.
    pub live_transient: u64,
    /// Bytes of the messages that persistent references name; shared ones count as often as they are
    /// named.
    pub live_bytes: u64,
    /// The same for transient ones.
    pub live_transient_bytes: u64,
    /// Bytes of all messages that began in it, whatever lives of them.
    pub message_bytes: u64,
    /// Bytes that all references to them named.
    pub named_bytes: u64,
    /// Length of its file.
    pub file_bytes: u32,
    /// Bytes used so far.
    pub used_bytes: u32,
    /// Fragments in it of messages that began or end elsewhere and live.
    pub pins: u32,
    /// Nothing is appended to it any more.
    pub is_sealed: bool,
    /// Whether there are records in it of what was settled or dropped; of what an earlier run wrote nobody knows.
    pub has_settles: bool,
}

impl Segment {
    /// Whether the next checkpoint can free it.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_sealed && self.is_empty()
    }

    /// Whether nothing in it lives.
    pub(crate) fn is_empty(&self) -> bool {
        self.references() == 0 && self.pins == 0
    }

    /// All references to messages in it that live.
    pub(crate) fn references(&self) -> u64 {
        self.live + self.live_transient
    }

    /// Of so many bytes that its references name, or so many references, what one of each message
    /// would have, if all messages had lost equally many.
    pub(crate) fn share(&self, of_all: u64) -> u64 {
        if self.message_bytes >= self.named_bytes {
            return of_all;
        }
        let share = u128::from(of_all) * u128::from(self.message_bytes);
        (share / u128::from(self.named_bytes)) as u64
    }

    /// Bytes of messages that living references name.
    pub(crate) fn named_alive(&self) -> u64 {
        self.live_bytes.saturating_add(self.live_transient_bytes)
    }

    /// Whether references to messages in it are gone.
    pub(crate) fn has_dead(&self) -> bool {
        self.named_alive() < self.named_bytes
    }

    /// Whether a message in it has several references.
    pub(crate) fn is_shared(&self) -> bool {
        self.message_bytes < self.named_bytes
    }

    /// The numbers of living references, and of the bytes that they name.
    fn counts(&mut self, is_transient: bool) -> (&mut u64, &mut u64) {
        match is_transient {
            true => (&mut self.live_transient, &mut self.live_transient_bytes),
            false => (&mut self.live, &mut self.live_bytes),
        }
    }

    /// So many further references, and bytes that they name, live.
    pub(crate) fn gain(&mut self, references: u64, bytes: u64, is_transient: bool) {
        let (live, live_bytes) = self.counts(is_transient);
        *live += references;
        *live_bytes += bytes;
    }

    /// So many references, and bytes that they named, do not live here any more.
    pub(crate) fn lose(&mut self, references: u64, bytes: u64, is_transient: bool) {
        let (live, live_bytes) = self.counts(is_transient);
        *live = live.saturating_sub(references);
        *live_bytes = live_bytes.saturating_sub(bytes);
    }
}
