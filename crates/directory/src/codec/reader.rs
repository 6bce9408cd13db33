//! Bytes read from the front.

use super::DecodeError;
use alloc::boxed::Box;
use alloc::vec::Vec;
use lepus_amqp::table::{Table, TableRef};
use lepus_base::VhostId;

/// What is left of the bytes.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn vhost(&mut self) -> Result<VhostId, DecodeError> {
        self.u32().map(VhostId)
    }

    /// A byte of which only the bits in `known` may be set.
    pub(super) fn flags(&mut self, known: u8, field: &'static str) -> Result<u8, DecodeError> {
        let flags = self.u8()?;
        if flags & !known == 0 { Ok(flags) } else { Err(DecodeError::Field(field)) }
    }

    pub(super) fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn optional(&mut self) -> Result<Option<i64>, DecodeError> {
        Ok(match self.flags(1, "flag")? {
            0 => None,
            _ => Some(self.i64()?),
        })
    }

    fn utf8(&mut self, length: usize) -> Result<&'a str, DecodeError> {
        core::str::from_utf8(self.take(length)?).map_err(|_| DecodeError::Field("text"))
    }

    /// A text with a length of one byte.
    pub(super) fn name(&mut self) -> Result<&'a str, DecodeError> {
        let length = self.u8()?;
        self.utf8(usize::from(length))
    }

    /// A text with a length of four bytes.
    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length = self.u32()?;
        self.utf8(length as usize)
    }

    pub(super) fn texts(&mut self) -> Result<Vec<Box<str>>, DecodeError> {
        let count = self.u32()?;
        // Each takes four bytes at least, so the list is no longer than the bytes are.
        if count as usize > self.0.len() / 4 {
            return Err(DecodeError::Short);
        }
        (0..count).map(|_| self.text().map(Box::from)).collect()
    }

    /// A table as AMQP has it.
    pub(super) fn table(&mut self) -> Result<Table, DecodeError> {
        let length = self.array().map(u32::from_be_bytes)?;
        let bytes = self.take(length as usize)?;
        let table = TableRef::decode(bytes).map_err(|_| DecodeError::Field("table"))?;
        Ok(table.to_owned())
    }
}
