use super::*;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};

struct Well;

impl Source for Well {
    fn collect(&self) -> Result<Snapshot, String> {
        Ok(Snapshot::default())
    }

    fn health(&self) -> Result<String, String> {
        Ok("ok".to_owned())
    }

    fn ready(&self) -> Result<(), String> {
        Err("not yet".to_owned())
    }
}

fn begin(source: impl Source) -> SocketAddr {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    start(vec![listener], Arc::new(source)).unwrap();
    address
}

fn connect(address: SocketAddr) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn probes_are_answered_while_silent_connections_take_all_places() {
    let address = begin(Well);
    let mut silent: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(address)).collect();
    for _ in 0..3 {
        assert!(get(address, "/health").starts_with("HTTP/1.1 200"));
        assert!(get(address, "/ready").starts_with("HTTP/1.1 503"));
    }
    // The oldest made room, one for each, but for the places that the probes gave back.
    assert_eq!(silent.remove(0).read(&mut [0]).unwrap(), 0);
    let last = silent.last_mut().unwrap();
    last.write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

#[test]
fn who_is_being_answered_keeps_its_place() {
    let places = Arc::new(Places::default());
    let here: IpAddr = "127.0.0.1".parse().unwrap();
    let all: Vec<Place> = (0..CONNECTIONS_MAX).map(|_| places.enter(here)).collect();
    all[0].set_silent(false);
    let _one_more = places.enter(here);
    let mut crowd = std::mem::take(&mut places.taken().crowd);
    assert_eq!(crowd.len(), CONNECTIONS_MAX);
    assert_eq!(crowd.leave(all[0].ticket), Some(all[0].key));
    assert_eq!(crowd.leave(all[1].ticket), None);
}

/// One whose figures come only when it is told so.
struct Slow {
    told: Mutex<Receiver<()>>,
    begun: Sender<()>,
}

impl Source for Slow {
    fn collect(&self) -> Result<Snapshot, String> {
        self.begun.send(()).unwrap();
        self.told.lock().unwrap().recv().unwrap();
        Ok(Snapshot::default())
    }

    fn health(&self) -> Result<String, String> {
        Ok("ok".to_owned())
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn probes_are_answered_while_figures_are_collected() {
    let (tell, told) = channel();
    let (begun, begins) = channel();
    let address = begin(Slow { told: Mutex::new(told), begun });
    let mut waiting = connect(address);
    waiting.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    begins.recv().unwrap();
    for path in ["/health", "/ready", "/"] {
        assert!(get(address, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    tell.send(()).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

/// Says when it was asked.
struct Asked(Sender<&'static str>, &'static str);

impl Source for Asked {
    fn collect(&self) -> Result<Snapshot, String> {
        Err(String::new())
    }

    fn health(&self) -> Result<String, String> {
        Err(String::new())
    }

    fn ready(&self) -> Result<(), String> {
        self.0.send(self.1).unwrap();
        Ok(())
    }
}

#[test]
fn who_asks_for_much_at_once_gets_one_answer_per_turn() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (asked, order) = channel();
    let places = Arc::new(Places::default());
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for (name, count) in [("much", 40), ("little", 0)] {
            let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut requests = "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n".repeat(count);
            requests.push_str("GET /ready HTTP/1.0\r\n\r\n");
            client.write_all(requests.as_bytes()).unwrap();
            server.set_nonblocking(true).unwrap();
            let stream = tokio::net::UnixStream::from_std(server).unwrap();
            let router = router(Arc::new(Asked(asked.clone(), name))).unwrap();
            let place = places.enter("127.0.0.1".parse().unwrap());
            let service = Service { router, request_timeout: REQUEST_TIMEOUT, tls: None };
            let peer = "127.0.0.1:1".parse().unwrap();
            let served = connection(stream, peer, service, place, None);
            tasks.push((tokio::spawn(served), client));
        }
        for (task, _client) in tasks {
            task.await.unwrap();
        }
    });
    drop(asked);
    let order: Vec<_> = order.iter().collect();
    assert_eq!(order.len(), 42);
    let before = order.iter().position(|name| *name == "little").unwrap();
    assert!(before <= 2, "{before} answers before the first of the other");
}
