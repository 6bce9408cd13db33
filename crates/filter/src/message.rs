//! A message as filters see it.

use lepus_amqp::PropertiesRef;

/// A message, borrowed from where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Message<'m> {
    /// Its properties and headers, as on the wire and well-formed; what is not is as if it were not there.
    pub properties: PropertiesRef<'m>,
    /// Its body.
    pub body: &'m [u8],
    /// How the body is to be read.
    pub format: BodyFormat,
    /// What the broker knows about it.
    pub meta: Meta<'m>,
}

/// What the broker knows about a message; what it does not know is null.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta<'m> {
    /// The exchange that it was published to.
    pub exchange: Option<&'m [u8]>,
    /// The key that it was published with.
    pub routing_key: Option<&'m [u8]>,
    /// Milliseconds since 1970-01-01 UTC when it was accepted.
    pub time: Option<u64>,
    /// Its place in a stream.
    pub offset: Option<u64>,
    /// Its number among a table's changes.
    pub sequence: Option<u64>,
    /// Its key in a table.
    pub key: Option<&'m [u8]>,
}

/// How bodies are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFormat {
    /// By the content type; without one by the first bytes.
    #[default]
    Auto,
    /// JSON, whatever the content type says.
    Json,
    /// FIX: `tag=value`, each field ended by SOH (byte 1).
    Fix,
    /// NVFIX: `name=value`, fields ended by SOH or, in a body without any SOH, by `|`.
    Nvfix,
    /// Not at all.
    None,
}

impl BodyFormat {
    /// The one of that name in arguments.
    #[must_use]
    pub fn from_name(name: &str) -> Option<BodyFormat> {
        let all = [
            BodyFormat::Auto,
            BodyFormat::Json,
            BodyFormat::Fix,
            BodyFormat::Nvfix,
            BodyFormat::None,
        ];
        all.into_iter().find(|format| format.name() == name)
    }

    /// Its name in arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BodyFormat::Auto => "auto",
            BodyFormat::Json => "json",
            BodyFormat::Fix => "fix",
            BodyFormat::Nvfix => "nvfix",
            BodyFormat::None => "none",
        }
    }
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Fix,
    Nvfix,
    /// Something else, or not to be read.
    Opaque,
    /// One of these, or it may be one, that cannot be read.
    Unreadable,
}

impl<'m> Message<'m> {
    /// A message with its properties and headers as they stand on the wire.
    #[must_use]
    pub fn new(
        properties: &'m [u8],
        body: &'m [u8],
        format: BodyFormat,
        meta: Meta<'m>,
    ) -> Message<'m> {
        Message { properties: PropertiesRef(properties), body, format, meta }
    }
}

impl Message<'_> {
    /// What the body is. One of more than so many bytes cannot be read, nor one with a content encoding.
    pub(crate) fn body_kind(&self, bytes_max: usize) -> BodyKind {
        let is_encoded = self.properties.content_encoding().is_some_and(|encoding| {
            // Many clients write the character set there, or that there is no encoding.
            let plain: [&[u8]; 5] = [b"", b"utf-8", b"utf8", b"identity", b"us-ascii"];
            !plain.iter().any(|plain| encoding.eq_ignore_ascii_case(plain))
        });
        let kind = match self.format {
            BodyFormat::Json => BodyKind::Json,
            BodyFormat::Fix => BodyKind::Fix,
            BodyFormat::Nvfix => BodyKind::Nvfix,
            BodyFormat::None => BodyKind::Opaque,
            BodyFormat::Auto => match self.properties.content_type() {
                Some(content_type) if !content_type.is_empty() => kind_of_type(content_type),
                // Its first bytes say nothing.
                _ if is_encoded => BodyKind::Unreadable,
                _ => kind_of_bytes(self.body),
            },
        };
        match kind {
            BodyKind::Opaque => kind,
            _ if self.body.len() > bytes_max || is_encoded => BodyKind::Unreadable,
            _ => kind,
        }
    }
}

fn kind_of_type(content_type: &[u8]) -> BodyKind {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let name = content_type[..end].trim_ascii();
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    let ending = name.len().checked_sub(5).map(|at| &name[at..]);
    if is(b"application/json") || ending.is_some_and(|end| end.eq_ignore_ascii_case(b"+json")) {
        BodyKind::Json
    } else if is(b"application/fix") {
        BodyKind::Fix
    } else if is(b"application/nvfix") {
        BodyKind::Nvfix
    } else {
        BodyKind::Opaque
    }
}

fn kind_of_bytes(body: &[u8]) -> BodyKind {
    match body {
        [b'{' | b'[', ..] => BodyKind::Json,
        [b'8', b'=', b'F', b'I', b'X', ..] => BodyKind::Fix,
        _ => BodyKind::Opaque,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::Properties;

    #[test]
    fn a_body_is_what_its_type_or_its_first_bytes_say() {
        let kind = |content_type: &str, encoding: &str, body: &[u8]| {
            let text = |text: &str| (!text.is_empty()).then(|| text.into());
            let properties = Properties {
                content_type: text(content_type),
                content_encoding: text(encoding),
                ..Properties::default()
            };
            let bytes = properties.to_bytes();
            let properties = PropertiesRef(&bytes);
            let format = BodyFormat::Auto;
            Message { properties, body, format, meta: Meta::default() }.body_kind(10)
        };
        assert_eq!(kind("Application/JSON; charset=utf-8", "", b"x"), BodyKind::Json);
        assert_eq!(kind("application/vnd.x+json", "UTF-8", b"x"), BodyKind::Json);
        assert_eq!(kind("application/fix", "", b"{}"), BodyKind::Fix);
        assert_eq!(kind("text/plain", "", b"{}"), BodyKind::Opaque);
        assert_eq!(kind("", "", b"{}"), BodyKind::Json);
        assert_eq!(kind("", "", b"8=FIX.4.4"), BodyKind::Fix);
        assert_eq!(kind("", "", b" {}"), BodyKind::Opaque);
        // What would be read otherwise cannot be: encoded, or too long.
        assert_eq!(kind("", "gzip", b"\x1f\x8b"), BodyKind::Unreadable);
        assert_eq!(kind("application/json", "gzip", b"{}"), BodyKind::Unreadable);
        assert_eq!(kind("text/plain", "gzip", b"{}"), BodyKind::Opaque);
        assert_eq!(kind("", "", b"[0123456789]"), BodyKind::Unreadable);
        assert_eq!(kind("", "", b"0123456789\n"), BodyKind::Opaque);
    }
}
