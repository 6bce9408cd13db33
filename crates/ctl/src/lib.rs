//! The languages of RabbitMQ's command line tools, translated to calls of the management API.
//!
//! [`run`] takes the name of a program, its arguments and a way to the API, and gives what the tool would print and
//! its exit code. Nothing of the broker is in here: whoever runs it says how the API is reached. `docs/ctl.md` lists
//! the commands, what they call and how they end; it is made of the same table as the help.
#![forbid(unsafe_code)]

pub mod admin;
pub mod api;
pub mod command;
pub mod document;
pub mod failure;
pub mod families;
mod file;
pub mod help;
pub mod http;
pub mod options;
pub mod output;
mod own;
pub mod program;
mod run;
pub mod term;

pub use api::{Api, Reply, Unreachable};
pub use program::Program;
pub use run::run;
