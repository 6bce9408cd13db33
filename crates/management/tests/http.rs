//! The HTTP listener, spoken to over real sockets.

use lepus_management::http::{Source, bind, start};
use lepus_management::snapshot::{Shard, Snapshot};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Default)]
struct Broker {
    stopping: AtomicBool,
    collected: AtomicUsize,
}

impl Source for Broker {
    fn collect(&self) -> Result<Snapshot, String> {
        self.collected.fetch_add(1, Ordering::Relaxed);
        Ok(Snapshot { shards: vec![Shard::default()], ..Snapshot::default() })
    }

    fn health(&self) -> Result<String, String> {
        Ok("ok".to_owned())
    }

    fn ready(&self) -> Result<(), String> {
        match self.stopping.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err("it stops".to_owned()),
        }
    }
}

fn serve() -> (SocketAddr, Arc<Broker>) {
    let broker = Arc::new(Broker::default());
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    start(vec![listener], Arc::clone(&broker) as Arc<dyn Source>).unwrap();
    (address, broker)
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_paths_answer() {
    let (address, broker) = serve();
    let page = get(address, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert!(page.contains("text/plain; version=0.0.4"), "{page}");
    assert!(page.contains("\nrabbitmq_connections 0\n"), "{page}");
    assert!(get(address, "/health").starts_with("HTTP/1.1 200 "));
    // That counts nothing.
    assert_eq!(broker.collected.load(Ordering::Relaxed), 1);
    assert!(get(address, "/ready").starts_with("HTTP/1.1 200 "));
    broker.stopping.store(true, Ordering::Relaxed);
    let answer = get(address, "/ready");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.ends_with("it stops\n"), "{answer}");
    assert!(get(address, "/other").starts_with("HTTP/1.1 404 "));
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let (address, _) = serve();
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(get(address, "/health").starts_with("HTTP/1.1 200 "));
    drop(silent);
}

#[test]
fn what_is_no_http_is_answered_and_closed() {
    let (address, _) = serve();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"AMQP\0\0\x09\x01").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
    assert!(get(address, "/health").starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_address_in_use_is_told() {
    let (address, _) = serve();
    let error = bind(address).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}
