//! What the clients of a shard do: what each of their connections and channels has open, and how it begins, goes on and
//! ends.

pub(crate) mod ack_row;
pub(crate) mod acknowledgement;
pub(crate) mod answer;
pub(crate) mod backpressure;
pub(crate) mod closing;
pub(crate) mod commit;
pub(crate) mod confirms;
pub(crate) mod consume;
pub(crate) mod declare;
pub(crate) mod deliveries;
pub(crate) mod dispatch;
pub(crate) mod ends;
pub(crate) mod fanout;
mod figures;
pub mod hand_over;
pub(crate) mod jobs;
pub(crate) mod lifecycle;
pub(crate) mod limits;
pub(crate) mod mail;
pub(crate) mod memory;
pub(crate) mod moves;
pub(crate) mod parked;
pub(crate) mod prefetch;
pub(crate) mod publish;
pub(crate) mod reading;
pub(crate) mod settle;
pub(crate) mod side;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod trace;

pub(crate) use side::SessionSide;
pub use state::Sessions;
