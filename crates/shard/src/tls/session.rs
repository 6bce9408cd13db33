//! An established TLS connection: records in, plain bytes out, and back.

use std::io::{self, IoSlice, Read, Write};

use lepus_reactor::Socket;
use rustls::ServerConnection;

/// TLS state of one connection after its handshake. It does no I/O of its own.
#[derive(Debug)]
pub struct Session {
    connection: ServerConnection,
}

/// What came out of a piece of ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decrypted {
    /// Plain bytes written to the target.
    pub(crate) bytes: usize,
    /// The peer has ended its side of the session.
    pub(crate) ended: bool,
}

impl Session {
    pub(crate) fn new(connection: ServerConnection) -> Session {
        Session { connection }
    }

    /// Decrypts `input` (may be empty, to fetch what was decrypted earlier) into `plain`, which must
    /// have room for as many bytes as were ever given and not fetched.
    ///
    /// # Errors
    /// When the peer violates the protocol. An alert for it may be waiting to be sent.
    pub(crate) fn decrypt(&mut self, mut input: &[u8], plain: &mut [u8]) -> io::Result<Decrypted> {
        let mut bytes = 0;
        let mut ended = false;
        loop {
            let state = self.connection.process_new_packets().map_err(io::Error::other)?;
            ended |= state.peer_has_closed();
            let mut waiting = state.plaintext_bytes_to_read();
            while waiting > 0 {
                let room = &mut plain[bytes..];
                if room.is_empty() {
                    return Err(io::Error::other("more plain bytes than ciphertext"));
                }
                let read = self.connection.reader().read(room)?;
                bytes += read;
                waiting = waiting.saturating_sub(read);
            }
            if input.is_empty() || ended {
                return Ok(Decrypted { bytes, ended });
            }
            self.connection.read_tls(&mut input)?;
        }
    }

    /// Encrypts what fits of `bytes` and says how much that was.
    pub(crate) fn encrypt(&mut self, bytes: &[u8]) -> usize {
        // Writing to a buffer in memory does not fail.
        self.connection.writer().write(bytes).unwrap_or(0)
    }

    /// Whether ciphertext waits to be written.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Announces the end of the session; the announcement waits to be written.
    pub(crate) fn end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Writes ciphertext with one call. `WouldBlock` when the socket takes nothing.
    pub(crate) fn write_to(&mut self, socket: &mut impl Socket) -> io::Result<usize> {
        self.connection.write_tls(&mut Writing(socket))
    }
}

/// A socket of the port as `std::io::Write`.
struct Writing<'a, K>(&'a mut K);

impl<K: Socket> Write for Writing<'_, K> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
