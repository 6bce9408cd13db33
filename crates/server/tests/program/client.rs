//! A client that does no more than log in.

use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions};
use lepus_base::Instant;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Logs in over a socket, which stays open as long as the value; the code and text of the refusal
/// otherwise.
pub fn log_in(
    address: SocketAddr,
    user: &str,
    password: &str,
    vhost: &str,
) -> Result<TcpStream, String> {
    let options = ClientOptions {
        user: user.to_owned(),
        password: password.to_owned(),
        vhost: vhost.to_owned(),
        ..ClientOptions::default()
    };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (now, mut out, mut input) = (Instant::default(), Vec::new(), Vec::new());
    let mut client = ClientConnection::new(options, now, &mut out);
    'handshake: loop {
        stream.write_all(&out).unwrap();
        out.clear();
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("closed".to_owned());
        }
        input.extend_from_slice(&bytes[..count]);
        loop {
            let (used, event) = client.receive(now, &input, &mut out);
            match event {
                ClientEvent::Opened => break 'handshake,
                ClientEvent::Closed { code, text } => return Err(format!("{} {text}", code.0)),
                ClientEvent::Error(error) => return Err(error.text),
                _ if used == 0 => break,
                _ => {
                    input.drain(..used);
                }
            }
        }
    }
    Ok(stream)
}
