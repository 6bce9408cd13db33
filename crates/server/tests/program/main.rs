//! The binary `lepus`, run as a program.

mod cli;
mod client;
mod gauge;
mod hostile;
<<<<<<< HEAD
mod locality;
=======
mod profile;
>>>>>>> main
mod restart;
mod running;
mod serve;
mod session;
mod signals;
mod store;
mod tls;
mod topology;
mod tune;
