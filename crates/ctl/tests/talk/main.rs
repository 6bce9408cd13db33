//! What the tools print, byte by byte, as RabbitMQ's own print it; each against an API that answers what the test says.
#![forbid(unsafe_code)]

mod fake;
mod node;
mod objects;
