//! What applications written with lapin need from the broker at `LEPUS_URI`.

mod connection;
mod consuming;
mod dead_letters;
mod errors;
mod expiry;
mod filters;
mod publishing;
mod queues;
mod relay;
mod session;
mod settling;
mod topology;
mod transactions;
