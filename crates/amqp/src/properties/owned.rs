//! Properties that own their fields.

use super::{COUNT, PropertiesRef, Property};
use crate::error::Malformed;
use crate::table::Table;
use crate::wire::{short_text, write_short};
use alloc::string::String;
use alloc::vec::Vec;

/// All properties of a message, for building and for tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    /// The MIME type of the body.
    pub content_type: Option<String>,
    /// The encoding of the body.
    pub content_encoding: Option<String>,
    /// The headers.
    pub headers: Option<Table>,
    /// 1 for transient, 2 for persistent messages.
    pub delivery_mode: Option<u8>,
    /// The priority in priority queues.
    pub priority: Option<u8>,
    /// What a reply refers to.
    pub correlation_id: Option<String>,
    /// Where a reply goes.
    pub reply_to: Option<String>,
    /// The message's time to live, milliseconds as decimal digits.
    pub expiration: Option<String>,
    /// The application's id of the message.
    pub message_id: Option<String>,
    /// Seconds since 1970-01-01 UTC.
    pub timestamp: Option<u64>,
    /// The application's type of the message.
    pub message_type: Option<String>,
    /// The user who published.
    pub user_id: Option<String>,
    /// The application that published.
    pub app_id: Option<String>,
    /// Kept for old clients.
    pub cluster_id: Option<String>,
}

impl Properties {
    /// Decodes the bytes behind a content header's body size. Short strings that are not UTF-8 get
    /// replacement characters.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Properties, Malformed> {
        let view = PropertiesRef(bytes);
        view.validate()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Properties {
            content_type: view.content_type().map(text),
            content_encoding: view.content_encoding().map(text),
            headers: view.headers().map(|headers| headers.to_owned()),
            delivery_mode: view.delivery_mode(),
            priority: view.priority(),
            correlation_id: view.correlation_id().map(text),
            reply_to: view.reply_to().map(text),
            expiration: view.expiration().map(text),
            message_id: view.message_id().map(text),
            timestamp: view.timestamp(),
            message_type: view.message_type().map(text),
            user_id: view.user_id().map(text),
            app_id: view.app_id().map(text),
            cluster_id: view.cluster_id().map(text),
        })
    }

    /// Appends flags and fields. Texts are cut to 255 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0, 0]);
        let mut flags = 0;
        for place in 0..COUNT {
            if self.encode_field(place, out) {
                flags |= 0x8000 >> place;
            }
        }
        out[start..start + 2].copy_from_slice(&u16::to_be_bytes(flags));
    }

    /// The wire form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Appends the field at `place` when it is there, and tells whether it was.
    fn encode_field(&self, place: u32, out: &mut Vec<u8>) -> bool {
        const HEADERS: u32 = Property::Headers as u32;
        let text = match place {
            HEADERS => {
                if let Some(headers) = &self.headers {
                    headers.encode(out);
                }
                return self.headers.is_some();
            }
            3 | 4 => {
                let octet = if place == 3 { self.delivery_mode } else { self.priority };
                out.extend(octet);
                return octet.is_some();
            }
            9 => {
                if let Some(seconds) = self.timestamp {
                    out.extend_from_slice(&seconds.to_be_bytes());
                }
                return self.timestamp.is_some();
            }
            0 => &self.content_type,
            1 => &self.content_encoding,
            5 => &self.correlation_id,
            6 => &self.reply_to,
            7 => &self.expiration,
            8 => &self.message_id,
            10 => &self.message_type,
            11 => &self.user_id,
            12 => &self.app_id,
            _ => &self.cluster_id,
        };
        if let Some(text) = text {
            write_short(out, short_text(text).as_bytes());
        }
        text.is_some()
    }
}
