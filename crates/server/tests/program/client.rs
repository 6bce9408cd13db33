//! A client that does no more than log in.

use lepus_amqp::client::ClientOptions;
use lepus_probe::Client;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Logs in over a socket, which stays open as long as the value; what says why not, with the code of a
/// refusal, otherwise.
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
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let client = Client::open(stream, options).map_err(|error| error.to_string())?;
    Ok(client.into_stream())
}
