//! Transactions of a fixed size on one channel.

use lepus_amqp::Method;
use lepus_amqp::method::tx;

/// Counts the work of the open transaction and commits it when it is full.
#[derive(Debug)]
pub(crate) struct Transaction {
    channel: u16,
    size: u64,
    open: u64,
    committing: bool,
}

impl Transaction {
    /// Transactions of `size` messages on `channel`; `size` is above 0.
    pub(crate) fn new(channel: u16, size: u64) -> Transaction {
        Transaction { channel, size, open: 0, committing: false }
    }

    /// How many more messages the open transaction takes now.
    pub(crate) fn room(&self) -> u64 {
        if self.committing { 0 } else { self.size - self.open }
    }

    /// Whether everything done so far is committed.
    pub(crate) fn is_settled(&self) -> bool {
        self.open == 0 && !self.committing
    }

    /// Counts `count` messages; at the size, the commit follows.
    pub(crate) fn add(&mut self, count: u64, out: &mut Vec<u8>) {
        self.open += count;
        if self.open >= self.size {
            self.commit(out);
        }
    }

    /// Commits what is open.
    pub(crate) fn commit(&mut self, out: &mut Vec<u8>) {
        if self.open > 0 {
            self.open = 0;
            self.committing = true;
            Method::from(tx::Commit {}).encode_frame(self.channel, out);
        }
    }

    /// Notes the broker's commit-ok.
    pub(crate) fn committed(&mut self) {
        self.committing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_transaction_is_committed_and_waits() {
        let mut transaction = Transaction::new(1, 3);
        let mut out = Vec::new();
        assert_eq!(transaction.room(), 3);
        transaction.add(2, &mut out);
        assert!(out.is_empty());
        transaction.add(1, &mut out);
        assert_eq!(&out[7..11], [0, 90, 0, 20]);
        assert_eq!(transaction.room(), 0);
        assert!(!transaction.is_settled());
        transaction.committed();
        assert_eq!(transaction.room(), 3);
        assert!(transaction.is_settled());
    }

    #[test]
    fn an_empty_transaction_is_not_committed() {
        let mut transaction = Transaction::new(1, 3);
        let mut out = Vec::new();
        transaction.commit(&mut out);
        assert!(out.is_empty());
        transaction.add(1, &mut out);
        transaction.commit(&mut out);
        assert!(!out.is_empty());
    }
}
