//! Reading and writing of the elementary types (AMQP 0-9-1, section 4.2.5).

use crate::error::Malformed;
use alloc::vec::Vec;

/// Reads values from the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// The octet that bits are taken from, shifted; `bits_left` of it are unread.
    bits: u8,
    bits_left: u8,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, bits: 0, bits_left: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was not read yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.bits_left = 0;
        let (head, rest) = self.bytes.split_first_chunk().ok_or(Malformed::Short)?;
        self.bytes = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn slice(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        self.bits_left = 0;
        let (head, rest) = self.bytes.split_at_checked(length).ok_or(Malformed::Short)?;
        self.bytes = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// The bytes of a short string, whatever they are.
    #[inline]
    pub(crate) fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u8()?;
        self.slice(usize::from(length))
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        core::str::from_utf8(self.short()?).map_err(|_| Malformed::Text)
    }

    /// The bytes of anything that has a length of four octets in front.
    #[inline]
    pub(crate) fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()?;
        self.slice(length as usize)
    }

    #[inline]
    pub(crate) fn bit(&mut self) -> Result<bool, Malformed> {
        if self.bits_left == 0 {
            self.bits = self.u8()?;
            self.bits_left = 8;
        }
        let bit = self.bits & 1 == 1;
        self.bits >>= 1;
        self.bits_left -= 1;
        Ok(bit)
    }
}

/// Appends values to a buffer; bits that follow each other share an octet.
#[derive(Debug)]
pub(crate) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// Bits used in the last octet; 0 when the next bit starts an octet.
    bits: u8,
}

impl<'o> Writer<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer { out, bits: 0 }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bits = 0;
        self.out.extend_from_slice(bytes);
    }

    /// A short string, cut to 255 bytes.
    pub(crate) fn short(&mut self, bytes: &[u8]) {
        self.bits = 0;
        write_short(self.out, bytes);
    }

    pub(crate) fn long(&mut self, bytes: &[u8]) {
        self.raw(&(bytes.len() as u32).to_be_bytes());
        self.raw(bytes);
    }

    pub(crate) fn bit(&mut self, bit: bool) {
        if self.bits == 0 {
            self.out.push(0);
        }
        if let Some(last) = self.out.last_mut() {
            *last |= u8::from(bit) << self.bits;
        }
        self.bits = (self.bits + 1) % 8;
    }
}

/// Appends a short string, cut to 255 bytes.
pub(crate) fn write_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(255)];
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

/// The longest beginning of `text` that fits a short string and does not cut a character.
pub(crate) fn short_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(255)]
}

/// An argument of a method: its Rust type decides how it lies on the wire.
pub(crate) trait Argument<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed>;
    fn write(&self, writer: &mut Writer<'_>);
}

macro_rules! integer_arguments {
    ($($ty:ident),*) => {$(
        impl<'a> Argument<'a> for $ty {
            #[inline]
            fn read(reader: &mut Reader<'a>) -> Result<$ty, Malformed> {
                reader.$ty()
            }
            fn write(&self, writer: &mut Writer<'_>) {
                writer.raw(&self.to_be_bytes());
            }
        }
    )*};
}

integer_arguments!(u8, u16, u32, u64);

impl<'a> Argument<'a> for bool {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<bool, Malformed> {
        reader.bit()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bit(*self);
    }
}

impl<'a> Argument<'a> for &'a str {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
        reader.text()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.short(short_text(self).as_bytes());
    }
}

impl<'a> Argument<'a> for &'a [u8] {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
        reader.long()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.long(self);
    }
}
