//! The binary `lepus`, run as a program.

mod changing;
mod check;
mod cli;
mod client;
mod counts;
mod damaged;
mod filters;
mod firehose;
mod gauge;
mod gzip;
mod hostile;
mod load;
mod locality;
mod long_messages;
mod management;
mod metrics;
mod moving;
mod orphans;
mod profile;
mod restart;
mod running;
mod serve;
mod sessions;
mod signals;
mod starting;
mod store;
mod tls;
mod topology;
mod tune;
mod unread;

use lepus_probe::session;
