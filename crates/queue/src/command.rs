//! Everything that can happen to a queue, as values.
//!
//! [`Queue::apply`] carries a command out, and nothing else changes a queue: whether the command comes from a channel of
//! this shard, from mail, from recovery or from a move. A command is plain data; what it needs of the shard it asks a
//! [`Sink`] for, and what follows from it for its giver are its effects.
//!
//! Each command has an owned form, [`Owned`], of which a record can be made that is replayed later.

mod incoming;

use lepus_base::{Now, ShardId};
use lepus_store::LaneSlot;

use crate::code::{Decode, Encode};
use crate::entry::{Dispatched, Get, Outcome, Ticket};
use crate::queue::{Consumer, ConsumerHandle, Deleted, Queue, Sink, SubscribeError};
use crate::settings::QueueSettings;

pub use incoming::{Admit, Message, OwnedPut, Publish, Put, Release};

/// What can be given to [`Queue::apply`].
pub trait Command: carry::Carry {}

/// How a command is carried out: out of reach for others, so that there is one way in.
pub(crate) mod carry {
    use super::{Now, Owned, Queue, Sink};

    /// A command that a queue knows how to carry out.
    pub trait Carry: Sized {
        /// What its giver has to know, or has to do next.
        type Effects: core::fmt::Debug;

        /// Changes the queue.
        fn carry_out(self, queue: &mut Queue, now: Now, sink: &mut impl Sink) -> Self::Effects;

        /// The same command without what it borrows; the sink's pool may have its message.
        fn owned(&self, sink: &mut impl Sink) -> Owned;
    }
}

/// Defines the commands that borrow nothing, the list of all, and how it is written and read.
macro_rules! commands {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* } -> $effects:ty =
            |$queue:ident, $now:pat_param, $sink:pat_param| $body:expr;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl carry::Carry for $name {
                type Effects = $effects;

                #[inline(always)]
                fn carry_out(self, $queue: &mut Queue, $now: Now, $sink: &mut impl Sink) -> $effects {
                    let $name { $($field),* } = self;
                    $body
                }

                fn owned(&self, _: &mut impl Sink) -> Owned {
                    Owned::$name(self.clone())
                }
            }

            impl Command for $name {}
        )*

        /// A command without what it borrows.
        #[derive(Debug)]
        pub enum Owned {
            /// [`Publish`].
            Publish(Message),
            /// [`Admit`].
            Admit(Message),
            /// [`Put`].
            Put(OwnedPut),
            /// [`Release`], by the message's number.
            Release(u64),
            $(
                #[doc = concat!("[`", stringify!($name), "`].")]
                $name($name),
            )*
        }

        impl Encode for Owned {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                match self {
                    Owned::Publish(message) => ("Publish", message).put(out),
                    Owned::Admit(message) => ("Admit", message).put(out),
                    Owned::Put(put) => ("Put", put).put(out),
                    Owned::Release(seq) => ("Release", seq).put(out),
                    $(Owned::$name(command) => {
                        stringify!($name).put(out);
                        $(command.$field.put(out);)*
                        let _ = command;
                    })*
                }
            }
        }

        impl Decode for Owned {
            fn take(input: &mut &[u8]) -> Option<Owned> {
                let name = alloc::boxed::Box::<str>::take(input)?;
                Some(match &*name {
                    "Publish" => Owned::Publish(Message::take(input)?),
                    "Admit" => Owned::Admit(Message::take(input)?),
                    "Put" => Owned::Put(OwnedPut::take(input)?),
                    "Release" => Owned::Release(u64::take(input)?),
                    $(stringify!($name) => {
                        Owned::$name($name { $($field: Decode::take(input)?),* })
                    })*
                    _ => return None,
                })
            }
        }

        impl Owned {
            /// Carries a command out that brings no message, and shows `see` its effects; gives others back.
            pub(crate) fn apply_plain(
                self,
                queue: &mut Queue,
                now: Now,
                sink: &mut impl Sink,
                see: impl FnOnce(&dyn core::fmt::Debug),
            ) -> Option<Owned> {
                match self {
                    $(Owned::$name(command) => see(&queue.apply(now, command, sink)),)*
                    other => return Some(other),
                }
                None
            }
        }
    };
}

commands! {
    /// Forgets a message after [`Admit`]: no log took it. The queue does not have it.
    ///
    /// # Panics
    /// When another message came between.
    Withdraw {
        /// What the message was given.
        ticket: Ticket
    } -> () = |queue, _, _| queue.withdraw(&ticket);

    /// Delivers ready messages.
    Dispatch {
        /// Messages at most; expired ones that it meets count too.
        budget: usize
    } -> Dispatched = |queue, now, sink| queue.dispatch(now, budget, sink);

    /// Does a slice of what is left to do: releases purged messages, drops expired ones from the head and those above
    /// the limits, delivers. The effect says whether another slice is needed now.
    Work {
        /// Messages at most.
        budget: usize,
        /// Messages that consumers' filters look at, at most.
        looks: usize
    } -> bool = |queue, now, sink| queue.work(now, (budget, looks), sink);

    /// A pending read completed or failed: the queue may go on.
    Wake {} -> () = |queue, _, _| queue.wake();

    /// Ends a delivery. The effect is false for one that is not known (any more).
    Settle {
        /// Its slot among the unacknowledged.
        slot: u32,
        /// The message's number, which guards the slot.
        seq: u64,
        /// What the consumer says about it.
        outcome: Outcome
    } -> bool = |queue, now, sink| queue.settle(now, slot, seq, outcome, sink);

    /// Takes the head for `basic.get`. Renews the lease.
    TakeHead {
        /// The delivery is settled by being sent: [`Release`] follows when it is.
        no_ack: bool
    } -> Get = |queue, now, sink| queue.get(now, no_ack, sink);

    /// A dead letter of the queue has arrived, or is given up.
    LetterSettled {
        /// Bytes of its payload.
        bytes: u32
    } -> () = |queue, _, _| queue.letter_settled(bytes);

    /// Removes all ready messages, which [`Work`] releases. The effect is their number.
    Purge {} -> u64 = |queue, _, sink| queue.purge(sink);

    /// Stops deliveries until as many of [`Unhold`] followed: while many messages come back in several slices, no newer
    /// one may overtake them.
    Hold {} -> () = |queue, _, _| queue.hold();

    /// Takes one [`Hold`] back.
    Unhold {} -> () = |queue, _, _| queue.unhold();

    /// Lets a consumer join. Refused when the queue is or is to be in exclusive use.
    Subscribe {
        /// It has no deliveries yet, whatever it says.
        consumer: Consumer
    } -> Result<ConsumerHandle, SubscribeError> = |queue, now, _| queue.subscribe(now, consumer);

    /// Lets a consumer leave. What was delivered to it stays with its channel. The effect is the consumer, if it was
    /// there.
    Cancel {
        /// Who it is.
        handle: ConsumerHandle
    } -> Option<Consumer> = |queue, now, _| queue.cancel(now, handle);

    /// Lets a parked consumer try again; nothing happens to others.
    Resume {
        /// Who it is.
        handle: ConsumerHandle
    } -> () = |queue, _, _| queue.resume(handle);

    /// A consumer's connection is on another shard now. The effect is false if there is none of that name.
    Relocate {
        /// Who it is.
        handle: ConsumerHandle,
        /// Where its connection is.
        shard: ShardId,
        /// The connection's slot there.
        slot: u32
    } -> bool = |queue, _, _| queue.relocate(handle, shard, slot);

    /// Renews the lease (`x-expires`): declare, also passive.
    Touch {} -> () = |queue, now, _| queue.touch(now);

    /// Changes the settings. Deadlines of messages that are in the queue stay; limits are applied by the next [`Work`].
    /// A lease of another length starts anew.
    Reconfigure {
        /// The new ones.
        settings: QueueSettings
    } -> () = |queue, now, _| queue.reconfigure(now, &settings);

    /// Messages are numbered from here on: those before are of an earlier run.
    BeginAt {
        /// The number of the first.
        seq: u64
    } -> () = |queue, _, _| queue.begin_at(seq);

    /// A lane has messages from an earlier run.
    Recover {
        /// The messages' priority.
        priority: u8,
        /// The lane.
        lane: LaneSlot,
        /// How many they are.
        count: u64,
        /// Bytes of their payloads.
        bytes: u64
    } -> () = |queue, _, _| queue.recover(priority, lane, count, bytes);

    /// Lets the log remember what is delivered and not settled, at an orderly end.
    MarkUnacked {} -> () = |queue, _, sink| queue.mark_unacked(sink);

    /// Leaves the log and the connections of its shard behind; the queue must be still.
    DetachLog {} -> () = |queue, _, _| queue.detach_log();

    /// Settles in on a shard: consumers are asked anew whether they take messages.
    Arrive {
        /// The shard.
        own: ShardId,
        /// Unsettled deliveries at most of a consumer of another shard.
        prefetch_max: u32
    } -> () = |queue, _, _| queue.arrive(own, prefetch_max);

    /// Empties the queue for good. [`Work`] releases its messages; until that says false the value must be kept. What it
    /// has in the log goes with the queue there.
    Delete {} -> Deleted = |queue, _, _| queue.delete();

    /// Gives spare capacity of short tables back, in a bounded time; for queues that are idle.
    Trim {} -> () = |queue, _, _| queue.trim();
}
