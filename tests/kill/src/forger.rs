//! Does for once what a broker must not do, to show that it is found.

use crate::oracle::{Delivery, Fault, Item, Oracle, Order};
use crate::topology::PUBLISHERS;
use std::collections::HashSet;

/// Deliveries between two looks for a message that is gone.
const LOOK_EVERY: u64 = 64;
/// Messages that are withheld.
const WITHHELD_MAX: usize = 16;

/// What can be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A delivery is withheld and its message acknowledged.
    Withhold,
    /// A message that is gone is delivered.
    Return,
    /// A message is delivered twice without the mark.
    Repeat,
    /// A message comes behind the next one.
    Reorder,
    /// A message that nobody published is delivered.
    Invent,
    /// A body comes changed.
    Damage,
    /// A confirm is told as a refusal.
    Refuse,
}

impl Forgery {
    /// All of them, with the fault that must be found.
    pub const ALL: [(Forgery, Fault); 7] = [
        (Forgery::Withhold, Fault::Lost),
        (Forgery::Return, Fault::Returned),
        (Forgery::Repeat, Fault::Unmarked),
        (Forgery::Reorder, Fault::Disordered),
        (Forgery::Invent, Fault::Invented),
        (Forgery::Damage, Fault::Damaged),
        (Forgery::Refuse, Fault::Refused),
    ];
}

/// Stands between the consumers and the oracle.
#[derive(Debug)]
pub struct Forger {
    /// What it will still do.
    forgery: Option<Forgery>,
    seen: u64,
    /// Queue, publisher and number of what nobody may see, however often it comes.
    withheld: HashSet<(usize, usize, u64)>,
}

impl Forger {
    /// A forger that does this once, or nothing.
    pub fn new(forgery: Option<Forgery>) -> Forger {
        Forger { forgery, seen: 0, withheld: HashSet::new() }
    }

    /// Tells the oracle how the broker answered a publish, truly or not.
    pub fn answer(&mut self, oracle: &mut Oracle, publisher: usize, number: u64, is_ack: bool) {
        let forged = self.forgery.take_if(|forgery| *forgery == Forgery::Refuse).is_some();
        match is_ack && !forged {
            true => oracle.confirm(publisher, number..number + 1),
            false => oracle.refuse(publisher, number),
        }
    }

    /// Tells the oracle of a delivery, truly or not.
    pub fn deliver(
        &mut self,
        oracle: &mut Oracle,
        delivery: Delivery,
        order: &mut Order,
    ) -> Option<Item> {
        let (Some(forgery), Some((publisher, number))) = (self.forgery, delivery.message) else {
            return oracle.deliver(delivery, order);
        };
        let trade = PUBLISHERS[publisher];
        self.seen += 1;
        if trade.is_moved() || !trade.is_persistent() || number == 0 {
            return oracle.deliver(delivery, order);
        }
        let mut done = true;
        let item = match forgery {
            // Some of them, since a kill may come before one is confirmed.
            Forgery::Withhold => {
                done = false;
                let message = (delivery.queue, publisher, number);
                if self.withheld.len() < WITHHELD_MAX {
                    self.withheld.insert(message);
                }
                match self.withheld.contains(&message) {
                    true => None,
                    false => oracle.deliver(delivery, order),
                }
            }
            Forgery::Return if self.seen.is_multiple_of(LOOK_EVERY) => {
                let gone = oracle.any_gone(delivery.queue);
                done = gone.is_some();
                if done {
                    let back = Delivery { message: gone, redelivered: true, ..delivery };
                    oracle.deliver(back, &mut Order::default());
                }
                oracle.deliver(delivery, order)
            }
            Forgery::Repeat => {
                let item = oracle.deliver(delivery, order);
                let again = Delivery { redelivered: false, ..delivery };
                oracle.deliver(again, &mut Order::default());
                item
            }
            Forgery::Reorder => {
                order[publisher] = Some(number + 1);
                oracle.deliver(delivery, order)
            }
            Forgery::Invent => {
                let message = Some((publisher, number + (1 << 40)));
                oracle.deliver(Delivery { message, ..delivery }, order);
                oracle.deliver(delivery, order)
            }
            Forgery::Damage => {
                oracle.deliver(Delivery { message: None, ..delivery }, order);
                oracle.deliver(delivery, order)
            }
            Forgery::Return | Forgery::Refuse => {
                done = false;
                oracle.deliver(delivery, order)
            }
        };
        if done {
            self.forgery = None;
        }
        item
    }
}
