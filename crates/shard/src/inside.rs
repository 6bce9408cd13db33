//! Connections from inside the process: another part of it speaks to the broker as a client does.

use std::fmt;
use std::io;
use std::net::TcpStream as StdStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use lepus_reactor::TcpStream;

use crate::core::PeerInfo;
use crate::distributor::Distributor;

/// Opens connections without a listener. Cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Inside {
    distributor: Arc<Distributor<TcpStream>>,
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}

impl Inside {
    pub(crate) fn new(distributor: &Arc<Distributor<TcpStream>>) -> Inside {
        Inside { distributor: Arc::clone(distributor) }
    }

    /// The client's end of a new connection, which blocks. The broker takes it for one of `peer`: whoever gives a
    /// [`PeerInfo::login_name`] vouches for that user. It counts as a connection like any other. When the shards have
    /// stopped, it is at its end at once.
    ///
    /// # Errors
    /// When the system has no sockets left, or as many connections as are allowed have logged in.
    pub fn connect(&self, peer: PeerInfo) -> io::Result<UnixStream> {
        let (client, server) = UnixStream::pair()?;
        server.set_nonblocking(true)?;
        // A shard reads, writes and polls a stream of bytes; what only TCP knows it may ask for in vain.
        let server = TcpStream::from_std(StdStream::from(OwnedFd::from(server)));
        self.distributor.give(server, peer, None).map_err(|full| {
            let text =
                format!("{} connections are open, as many as are allowed", full.connections_max);
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        })?;
        self.distributor.ring();
        Ok(client)
    }
}
