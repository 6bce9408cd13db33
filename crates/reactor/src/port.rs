//! What a shard asks of the machine's sockets.

use std::io;
use std::time::Duration;

/// Names a registered socket in [`Readiness`]. Chosen by the caller, unique among the registered
/// sockets of one reactor, below `u32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u32);

/// What became possible on a socket since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The socket.
    pub token: Token,
    /// Bytes (or the end of the stream) may be read.
    pub readable: bool,
    /// Bytes may be written again.
    pub writable: bool,
    /// The peer has shut down its sending side: after the bytes that wait comes the end.
    pub ending: bool,
    /// The connection is dead in both directions.
    pub dead: bool,
}

/// One nonblocking stream socket.
pub trait Socket: Send + 'static {
    /// Reads what is there, at most `buffer.len()` bytes; `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; anything else means that the connection is lost.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes what fits.
    ///
    /// # Errors
    /// `WouldBlock` when nothing fits; anything else means that the connection is lost.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Writes what fits of several slices, in order, with one call where the system can.
    ///
    /// # Errors
    /// As for [`Socket::write`].
    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.write(slice) {
                Ok(count) if count == slice.len() => written += count,
                Ok(count) => return Ok(written + count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Acknowledges at once what was read, where the system can: a peer that gathers small writes
    /// (Nagle's algorithm) holds the next one back until then, which the system would put off in
    /// the hope of an answer to go with.
    fn acknowledge_at_once(&mut self) {}

    /// Has the system drop what the peer has not taken some seconds after the socket is dropped. Otherwise it keeps that
    /// for minutes, where nothing counts or bounds it.
    fn forget_unsent_soon(&mut self) {}

    /// Tells the peer that nothing more will be written. Errors are of no interest: the socket is
    /// about to be dropped.
    fn shut_down_writing(&mut self);
}

/// Waits for sockets. One per shard; the only place where a shard may block.
pub trait Reactor: 'static {
    /// Its sockets.
    type Socket: Socket;

    /// Starts to report the socket's readiness in both directions under `token`. What is ready
    /// already is reported by the next poll.
    ///
    /// # Errors
    /// When the system refuses (no memory, too many watches).
    fn register(&mut self, socket: &mut Self::Socket, token: Token) -> io::Result<()>;

    /// Ceases to report. A readiness that was collected by an earlier poll is the caller's to
    /// forget.
    ///
    /// # Errors
    /// When the socket is not registered.
    fn deregister(&mut self, socket: &mut Self::Socket) -> io::Result<()>;

    /// Waits until something is ready, the alarm rings or the time is over, and adds what is ready
    /// to `ready`. Zero only looks; `None` waits without limit. Returns whether the alarm rang.
    ///
    /// # Errors
    /// When the system's readiness queue fails; nothing can be done then.
    fn poll(&mut self, timeout: Option<Duration>, ready: &mut Vec<Readiness>) -> io::Result<bool>;
}
