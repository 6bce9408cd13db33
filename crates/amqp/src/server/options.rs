//! What a server tells its clients and what it takes from them.

use crate::method::{Method, connection};
use crate::table::Table;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Capabilities of the server, all of them true.
const CAPABILITIES: [&str; 9] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
];

/// Greeting and limits of a server. A connection copies what it needs when it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerOptions {
    /// Server property `product`; clients and their tests look for `RabbitMQ`.
    pub product: String,
    /// Server property `version`; clients parse three numbers.
    pub version: String,
    /// Server property `platform`.
    pub platform: String,
    /// Server property `information`.
    pub information: String,
    /// Server property `cluster_name`.
    pub cluster_name: String,
    /// Further server properties.
    pub properties: Table,
    /// Names of the authentication mechanisms, separated by spaces.
    pub mechanisms: String,
    /// Number of open channels offered.
    pub channel_max: u16,
    /// Largest frame offered in bytes, 0 for no limit.
    pub frame_max: u32,
    /// Heartbeat interval proposed, in seconds.
    pub heartbeat: u16,
    /// Largest body of a message in bytes.
    pub body_bytes_max: u64,
    /// Bytes that the unfinished contents of one connection may hold together.
    pub assembly_bytes_max: usize,
    /// Time from the beginning to a whole protocol header.
    pub header_timeout: Duration,
    /// Time from the beginning to an open virtual host.
    pub handshake_timeout: Duration,
    /// Time a client has to answer `connection.close`.
    pub close_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            product: "RabbitMQ".into(),
            version: "4.2.0".into(),
            platform: "lepus".into(),
            information: "lepus, a broker for AMQP 0-9-1".into(),
            cluster_name: "lepus".into(),
            properties: Table::new(),
            mechanisms: "PLAIN AMQPLAIN".into(),
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat: 60,
            body_bytes_max: 128 * 1024 * 1024,
            assembly_bytes_max: 256 * 1024 * 1024,
            header_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(10),
        }
    }
}

impl ServerOptions {
    /// The frame of `connection.start`.
    pub(super) fn start_frame(&self) -> Vec<u8> {
        let capabilities: Table = CAPABILITIES.iter().map(|name| (*name, true)).collect();
        let mut properties = Table::new()
            .with("capabilities", capabilities)
            .with("cluster_name", self.cluster_name.as_str())
            .with("information", self.information.as_str())
            .with("platform", self.platform.as_str())
            .with("product", self.product.as_str())
            .with("version", self.version.as_str());
        for (name, value) in self.properties.iter() {
            properties.insert(name, value.clone());
        }
        let properties = properties.to_bytes();
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: properties.as_ref(),
            mechanisms: self.mechanisms.as_bytes(),
            locales: b"en_US",
        };
        let mut frame = Vec::new();
        Method::from(start).encode_frame(0, &mut frame);
        frame
    }
}
