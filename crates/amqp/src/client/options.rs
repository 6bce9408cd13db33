//! Who a client is and what it asks for.

use crate::table::Table;
use alloc::string::String;
use core::time::Duration;

/// Capabilities a client of this crate has.
const CAPABILITIES: [&str; 5] = [
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
];

/// Login and limits of a client.
#[derive(Clone, PartialEq)]
pub struct ClientOptions {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
    /// The virtual host.
    pub vhost: String,
    /// The authentication mechanism: PLAIN, AMQPLAIN or EXTERNAL.
    pub mechanism: String,
    /// The locale, which servers ignore.
    pub locale: String,
    /// Highest channel number wanted, 0 for the server's.
    pub channel_max: u16,
    /// Largest frame wanted in bytes, 0 for the server's.
    pub frame_max: u32,
    /// Heartbeat interval in seconds, 0 for none.
    pub heartbeat: u16,
    /// Client properties, `connection_name` for one.
    pub properties: Table,
    /// Largest body taken in bytes.
    pub body_bytes_max: u64,
    /// Time from the connect to an open virtual host.
    pub handshake_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        let capabilities: Table = CAPABILITIES.iter().map(|name| (*name, true)).collect();
        ClientOptions {
            user: "guest".into(),
            password: "guest".into(),
            vhost: "/".into(),
            mechanism: "PLAIN".into(),
            locale: "en_US".into(),
            channel_max: 0,
            frame_max: 0,
            heartbeat: 60,
            properties: Table::new().with("product", "lepus").with("capabilities", capabilities),
            body_bytes_max: 512 * 1024 * 1024,
            handshake_timeout: Duration::from_secs(30),
        }
    }
}

impl core::fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ClientOptions")
            .field("user", &self.user)
            .field("vhost", &self.vhost)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}
