//! Probes of a process without file descriptors. Alone in its process, since the limit holds for all of it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lepus_management::http::{Source, bind, start};
use lepus_management::snapshot::Snapshot;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

struct Well;

impl Source for Well {
    fn collect(&self) -> Result<Snapshot, String> {
        Ok(Snapshot::default())
    }

    fn health(&self) -> Result<String, String> {
        Ok("ok".to_owned())
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The answer to a request, and the connection, whose descriptor stays in use.
fn get(address: SocketAddr, socket: Socket, path: &str) -> (String, TcpStream) {
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer, stream)
}

#[test]
fn probes_are_answered_one_after_the_other_without_descriptors() {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    start(vec![listener], Arc::new(Well)).unwrap();
    let one_more = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Its answer comes from a thread that has all that it needs.
    let mut used = vec![get(address, one_more(), "/health").1];
    let sockets: Vec<Socket> = (0..6).map(|_| one_more()).collect();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum }).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    let paths = ["/health", "/metrics", "/ready"];
    for (socket, path) in sockets.into_iter().zip(paths.iter().cycle()) {
        let (answer, stream) = get(address, socket, path);
        assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
        used.push(stream);
    }
}
