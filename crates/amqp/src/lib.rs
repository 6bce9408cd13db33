//! AMQP 0-9-1 on the wire: frames, methods, field tables, properties and the connection machine.
//!
//! Everything here is sans-I/O: bytes and the time come in, bytes and events go out.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod assembly;
pub mod client;
pub mod code;
mod content;
mod drain;
mod encode;
pub mod error;
pub mod frame;
mod heartbeat;
pub mod method;
pub mod properties;
pub mod sasl;
pub mod server;
pub mod table;
mod wire;

pub use code::ReplyCode;
pub use error::{Malformed, ProtocolError};
pub use method::Method;
pub use properties::{Properties, PropertiesRef};
pub use table::{Table, TableRef, Value, ValueRef};
