//! A TCP relay in front of the broker whose connections can be cut as a bad network does.

use std::sync::{Arc, Mutex};

use lapin::uri::AMQPUri;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::session::uri;

pub struct Relay {
    port: u16,
    accepting: JoinHandle<()>,
    streams: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Relay {
    pub async fn open() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let opened = streams.clone();
        let accepting = tokio::spawn(async move {
            let authority = uri().authority;
            while let Ok((mut client, _)) = listener.accept().await {
                let Ok(mut broker) =
                    TcpStream::connect((authority.host.as_str(), authority.port)).await
                else {
                    continue;
                };
                let copying = async move {
                    // An error of one side closes both, which is all that a relay can pass on of it.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut broker).await;
                };
                opened.lock().expect("streams").push(tokio::spawn(copying));
            }
        });
        Relay { port, accepting, streams }
    }

    /// The broker's address with the relay in front.
    pub fn uri(&self) -> AMQPUri {
        let mut uri = uri();
        uri.authority.host = "127.0.0.1".into();
        uri.authority.port = self.port;
        uri
    }

    /// Ends every connection that runs through the relay, without a word of AMQP.
    pub fn cut(&self) {
        for stream in self.streams.lock().expect("streams").drain(..) {
            stream.abort();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}
