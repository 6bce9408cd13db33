//! What was published to the exchanges of a shard's clients.
//!
//! An exchange has a record from its first message on until it is gone; one without messages pays four bytes at most. A
//! channel's route knows where the record is, so that a message, or a row of them, costs an addition.

use alloc::vec::Vec;

use lepus_base::VhostId;

/// What clients of a shard published to an exchange. Messages that come to it by a binding of another exchange are counted
/// there: what the exchange does with them is a part of the way from the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCounts {
    /// Messages published to it; those of a transaction when it is committed.
    pub published: u64,
    /// Queues that these reached, by whatever way, each once for a message.
    pub routed: u64,
    /// Messages that reached no queue and were returned.
    pub returned: u64,
    /// Messages that reached no queue and were dropped.
    pub dropped: u64,
}

/// Where the counts of an exchange are. It holds as long as the version of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(u32);

/// The counts of all exchanges that have some.
#[derive(Debug, Default)]
pub(crate) struct ExchangeTable {
    /// By place in the directory: one more than the number of the record, 0 for none.
    by_place: Vec<u32>,
    records: Vec<ExchangeCounts>,
    /// Numbers of records that are not used.
    free: Vec<u32>,
    /// The default exchange that was asked for last.
    last_default: Option<(VhostId, Record)>,
}

impl ExchangeTable {
    /// Where the exchange at a place of the directory is counted.
    #[inline]
    pub(crate) fn record(&mut self, place: u32) -> Record {
        match self.by_place.get(place as usize) {
            Some(&number) if number > 0 => Record(number - 1),
            _ => self.begin(place),
        }
    }

    /// The same for the default exchange of a virtual host, whose place is looked for where it is not the one of the last
    /// time.
    #[inline]
    pub(crate) fn record_of_default(
        &mut self,
        vhost: VhostId,
        place: impl FnOnce() -> Option<u32>,
    ) -> Option<Record> {
        if let Some((last, record)) = self.last_default
            && last == vhost
        {
            return Some(record);
        }
        let record = self.record(place()?);
        self.last_default = Some((vhost, record));
        Some(record)
    }

    #[cold]
    fn begin(&mut self, place: u32) -> Record {
        let place = place as usize;
        if place >= self.by_place.len() {
            self.by_place.resize(place + 1, 0);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.records.push(ExchangeCounts::default());
                self.records.len() as u32 - 1
            }
        };
        self.by_place[place] = number + 1;
        Record(number)
    }

    /// Counts messages that were published, and the queues that they reached together.
    #[inline]
    pub(crate) fn count(&mut self, record: Record, messages: u64, queues: u64) {
        let counts = &mut self.records[record.0 as usize];
        counts.published += messages;
        counts.routed += queues;
    }

    /// Counts a message of those that were published, which reached no queue.
    pub(crate) fn count_unroutable(&mut self, record: Record, is_returned: bool) {
        let counts = &mut self.records[record.0 as usize];
        *if is_returned { &mut counts.returned } else { &mut counts.dropped } += 1;
    }

    /// What was published to the exchange at a place of the directory, if anything.
    pub(crate) fn counts(&self, place: u32) -> Option<ExchangeCounts> {
        let number = self.by_place.get(place as usize)?.checked_sub(1)?;
        Some(self.records[number as usize])
    }

    /// The exchanges at these places are gone.
    pub(crate) fn forget(&mut self, places: &[u32]) {
        for &place in places {
            let Some(number) = self.by_place.get_mut(place as usize) else { continue };
            let Some(number) = core::mem::take(number).checked_sub(1) else { continue };
            self.records[number as usize] = ExchangeCounts::default();
            self.free.push(number);
            self.last_default = None;
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.records.capacity() * size_of::<ExchangeCounts>()
            + (self.by_place.capacity() + self.free.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ExchangeTable {
        /// Exchanges that are counted.
        fn len(&self) -> usize {
            self.records.len() - self.free.len()
        }
    }

    #[test]
    fn an_exchange_has_a_record_from_its_first_message_until_it_goes() {
        let mut table = ExchangeTable::default();
        let record = table.record(7);
        assert_eq!(table.record(7), record);
        table.count(record, 3, 6);
        table.count_unroutable(record, true);
        let expected = ExchangeCounts { published: 3, routed: 6, returned: 1, dropped: 0 };
        assert_eq!((table.counts(7), table.counts(6), table.len()), (Some(expected), None, 1));
        table.forget(&[6, 7, 8, 7]);
        assert_eq!((table.counts(7), table.len()), (None, 0));
        // Who comes to the same place, or takes the record, begins at nothing.
        let record = table.record(7);
        assert_eq!((table.counts(7), table.len()), (Some(ExchangeCounts::default()), 1));
        table.count(record, 1, 0);
        let other = table.record(3);
        assert_ne!(record, other);
        assert_eq!(table.counts(3), Some(ExchangeCounts::default()));
    }

    #[test]
    fn the_default_exchange_of_another_virtual_host_is_another_one() {
        let mut table = ExchangeTable::default();
        let (one, two) = (VhostId(1), VhostId(2));
        let first = table.record_of_default(one, || Some(0));
        assert_eq!(table.record_of_default(one, || panic!("it is known")), first);
        assert_ne!(table.record_of_default(two, || Some(5)), first);
        assert_eq!(table.record_of_default(one, || Some(0)), first);
        table.forget(&[0]);
        assert_eq!(table.record_of_default(one, || None), None);
    }

    #[test]
    fn idle_exchanges_take_four_bytes_at_most() {
        let mut table = ExchangeTable::default();
        let record = table.record(99_999);
        table.count(record, 1, 1);
        assert_eq!(table.len(), 1);
        assert!(table.memory_bytes() < 100_000 * 4 + 1_000, "{} bytes", table.memory_bytes());
    }
}
