//! What clients rely on, feature by feature, in virtual time and without sockets.
//!
//! Most sentences are played on several stages: one shard, two shards with the clients apart, and
//! three where neither client lives on the shard that orders the directory.

mod stage;
mod wire;

mod acks;
mod alternate_exchange;
mod authentication;
mod bindings;
mod channels;
mod confirms;
mod consume;
mod exchange_to_exchange;
mod exchanges;
mod exclusive;
mod frames;
mod get;
mod global_qos;
mod handshake;
mod heartbeat;
mod lease;
mod length;
mod mandatory;
mod negotiation;
mod permissions;
mod publish;
mod qos;
mod queues;
mod requeue;
mod routing;
mod single_active;
mod transactions;
mod ttl;
