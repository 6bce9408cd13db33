//! A server without file descriptors. Alone in its process, since the limit holds for all of it.

#[path = "echo/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "echo/core.rs"]
#[allow(dead_code)]
mod core;

use std::fs::File;

use lepus_shard::Notice;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Client, config, finish, start_with};
use crate::core::ECHO;

#[test]
fn accepting_goes_on_when_descriptors_are_free_again() {
    let (config, log) = config(1);
    let running = start_with(config);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum }).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    // One for the client's side, none for the server's.
    hoard.pop();
    let mut client = Client::connect(running.addresses()[0]);
    client.send(ECHO, b"at last");
    let failed = log.iter().find(|notice| matches!(notice, Notice::AcceptFailed { .. }));
    assert!(failed.is_some());
    hoard.clear();
    assert_eq!(client.read(7), b"at last");
    finish(running);
}
