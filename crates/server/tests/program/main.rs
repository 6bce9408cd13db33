//! The binary `lepus`, run as a program.

mod cli;
mod client;
mod running;
mod serve;
mod session;
mod signals;
mod tls;
