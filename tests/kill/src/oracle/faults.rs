//! What a broker did wrong.

/// Examples that are kept of each kind.
const EXAMPLES_MAX: usize = 5;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A confirmed message is not there any more.
    Lost,
    /// A message came back whose ack was answered more than a second before the kill.
    Returned,
    /// A message was delivered again without the mark `redelivered`.
    Unmarked,
    /// A consumer got a publisher's messages in another order.
    Disordered,
    /// A transient message survived.
    Revived,
    /// A message that was never published.
    Invented,
    /// A body that was never published.
    Damaged,
    /// A message in a queue to which it was not published.
    Stray,
    /// A message was refused, though no disk was full and no queue has a rule for that.
    Refused,
    /// A message came back to its publisher as unroutable.
    Unroutable,
    /// A part of a commit is there and a part is not.
    Torn,
    /// A queue holds fewer or more messages than it can.
    Miscounted,
    /// A queue, an exchange or a connection was not there when it should have been.
    Missing,
    /// The broker ended without need, or not as it should, or does not go on when its disk is well again.
    Fell,
}

impl Fault {
    /// All kinds, with what they are in a few words.
    pub const ALL: [(Fault, &'static str); 14] = [
        (Fault::Lost, "confirmed messages lost"),
        (Fault::Returned, "acknowledged messages back after more than 1 s"),
        (Fault::Unmarked, "duplicates without redelivered"),
        (Fault::Disordered, "messages out of order"),
        (Fault::Revived, "transient messages that survived"),
        (Fault::Invented, "messages never published"),
        (Fault::Damaged, "damaged bodies"),
        (Fault::Stray, "messages in a wrong queue"),
        (Fault::Refused, "messages refused without a reason"),
        (Fault::Unroutable, "messages given back"),
        (Fault::Torn, "torn commits"),
        (Fault::Miscounted, "wrong counts after a restart"),
        (Fault::Missing, "queues, exchanges or answers missing"),
        (Fault::Fell, "ends without need, or in disorder"),
    ];
}

/// Faults so far.
#[derive(Debug, Default)]
pub struct Faults {
    counts: [u64; Fault::ALL.len()],
    examples: Vec<(Fault, String)>,
}

impl Faults {
    /// Notes a fault; `about` is asked only for the first ones of a kind.
    pub fn note(&mut self, fault: Fault, about: impl FnOnce() -> String) {
        let count = &mut self.counts[fault as usize];
        *count += 1;
        if *count <= EXAMPLES_MAX as u64 {
            self.examples.push((fault, about()));
        }
    }

    /// Faults of a kind.
    pub fn count(&self, fault: Fault) -> u64 {
        self.counts[fault as usize]
    }

    /// All faults.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The first ones of each kind, in words, from the `from`th on.
    pub fn examples(&self, from: usize) -> impl Iterator<Item = String> + '_ {
        self.examples.iter().skip(from).map(|(fault, about)| format!("{fault:?}: {about}"))
    }

    /// Examples so far.
    pub fn examples_count(&self) -> usize {
        self.examples.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_stands_in_the_order_of_the_kinds() {
        for (at, (fault, _)) in Fault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, at);
        }
    }
}
