//! AMQP 0-9-1 on the wire: frames, methods, field tables, properties and the connection machine.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod code;
