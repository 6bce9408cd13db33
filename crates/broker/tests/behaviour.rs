//! What clients rely on, feature by feature, in virtual time and without sockets.
//!
//! Most sentences are played on several stages: one shard, two shards with the clients apart, and
//! three where neither client lives on the shard that orders the directory.

mod acks;
mod alternate_exchange;
mod authentication;
mod backlog;
mod bindings;
mod blocked;
mod channels;
mod confirms;
mod consume;
mod copies;
mod dead_letters;
mod dead_letters_kept;
mod definitions;
mod delayed;
mod disk_trouble;
mod exchange_to_exchange;
mod exchanges;
mod exclusive;
mod frames;
mod get;
mod global_qos;
mod hand_over;
mod handshake;
mod heartbeat;
mod large_bodies;
mod lease;
mod length;
mod local_traffic;
mod mandatory;
mod marks;
mod moves;
mod negotiation;
mod permissions;
mod priorities;
mod publish;
mod qos;
mod queue_moves;
mod queues;
mod quorum;
mod reply_to;
mod requeue;
mod restart;
mod routing;
mod rows;
mod shut_down;
mod single_active;
mod stage;
mod transactions;
mod ttl;
mod unread;
mod user_id;
mod visibility;
mod wire;
