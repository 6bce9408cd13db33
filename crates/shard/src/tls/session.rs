//! An established TLS connection: records in, plain bytes out, and back.

use std::io::{self, IoSlice, Read, Write};

use lepus_base::Slices;
use lepus_reactor::Socket;
use rustls::ServerConnection;

/// What a session takes beside the bytes that it holds, about: keys and states.
const SESSION_BYTES: usize = 8 * 1024;
/// Bytes of a record's head.
const HEAD_BYTES: usize = 5;
/// What a record takes beside its content, at most (TLS 1.2 with an explicit nonce).
const OVERHEAD_BYTES: usize = HEAD_BYTES + 8 + 16 + 1;
/// Content of one record.
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// What of messages of the protocol itself may be held until they are whole.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// TLS state of one connection after its handshake. It does no I/O of its own.
#[derive(Debug)]
pub struct Session {
    connection: ServerConnection,
    records: Records,
    /// Bytes that came since there were plain ones.
    fruitless: usize,
    /// Bytes of records that wait to be written, about.
    unwritten: usize,
    /// What was told last of the memory that it takes.
    told: usize,
}

/// Follows records as they come (RFC 8446, section 5.1): the stage holds one until it is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    /// Bytes of the present one that came, its head included.
    came: usize,
    /// The length of its content, as far as its head came.
    length: usize,
}

impl Records {
    /// More bytes came.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.came < HEAD_BYTES {
                // A type, two bytes of a version, two of a length.
                if self.came >= 3 {
                    self.length = self.length << 8 | usize::from(byte);
                }
                self.came += 1;
                bytes = rest;
            } else {
                let count = bytes.len().min(HEAD_BYTES + self.length - self.came);
                self.came += count;
                bytes = &bytes[count..];
            }
            if self.came >= HEAD_BYTES && self.came == HEAD_BYTES + self.length {
                *self = Records::default();
            }
        }
    }
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
    /// `records` knows what came during the handshake.
    pub(crate) fn new(connection: ServerConnection, records: Records) -> Session {
        Session { connection, records, fruitless: 0, unwritten: 0, told: 0 }
    }

    /// The memory that it takes, about, if that is not what was told last. Until the login that is only what the
    /// peer made it hold: what each takes is bounded by their number, and few would get in beside each
    /// other if it counted.
    pub(crate) fn take_change(&mut self, has_logged_in: bool) -> Option<usize> {
        let unfinished = self.records.came.max(self.fruitless.min(MESSAGE_BYTES_MAX));
        let own = if has_logged_in { SESSION_BYTES } else { 0 };
        let bytes = own + unfinished + self.unwritten;
        (std::mem::replace(&mut self.told, bytes) != bytes).then_some(bytes)
    }

    /// Decrypts `input` (may be empty, to fetch what was decrypted earlier) into `plain`, which must
    /// have room for as many bytes as were ever given and not fetched.
    ///
    /// # Errors
    /// When the peer violates the protocol. An alert for it may be waiting to be sent.
    pub(crate) fn decrypt(&mut self, mut input: &[u8], plain: &mut [u8]) -> io::Result<Decrypted> {
        self.records.take(input);
        self.fruitless = self.fruitless.saturating_add(input.len());
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
                self.fruitless = 0;
                waiting = waiting.saturating_sub(read);
            }
            if input.is_empty() || ended {
                return Ok(Decrypted { bytes, ended });
            }
            self.connection.read_tls(&mut input)?;
        }
    }

    /// Encrypts what fits of `slices`, as one piece, and says how much that was.
    pub(crate) fn encrypt(&mut self, slices: &Slices<'_>) -> usize {
        let mut writer = self.connection.writer();
        // Writing to a buffer in memory does not fail.
        let taken = match slices.more {
            None => writer.write(slices.first),
            Some(_) => writer.write_vectored(&slices.all().map(IoSlice::new)),
        };
        let taken = taken.unwrap_or(0);
        self.unwritten += taken + taken.div_ceil(RECORD_BYTES_MAX) * OVERHEAD_BYTES;
        taken
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
        let count = self.connection.write_tls(&mut Writing(socket))?;
        self.unwritten = match self.connection.wants_write() {
            true => self.unwritten.saturating_sub(count),
            false => 0,
        };
        Ok(count)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_a_record_that_came_is_known_however_it_comes() {
        let mut stream = Vec::new();
        let mut ends = vec![0];
        for length in [0, 1, 300, 16_384] {
            stream.extend([23, 3, 3, (length >> 8) as u8, length as u8]);
            stream.resize(stream.len() + length, 255);
            ends.push(stream.len());
        }
        for piece in [1, 2, 7, 1000, stream.len()] {
            let (mut records, mut came) = (Records::default(), 0);
            for bytes in stream.chunks(piece) {
                records.take(bytes);
                came += bytes.len();
                let begin = ends.iter().rfind(|end| **end <= came).unwrap();
                assert_eq!(records.came, came - begin, "{came} bytes in pieces of {piece}");
            }
        }
    }
}
