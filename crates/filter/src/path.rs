//! Names of what a message has.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// A field of the message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// A field of the body; at least one step.
    Body(Vec<Step>),
    /// A field of the headers table; the first step is a name.
    Header(Vec<Step>),
    /// A field that every message has or lacks in the same place.
    Field(Field),
}

/// An array whose elements `ANY` and `ALL` look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListPath {
    /// Where the array is.
    pub list: Path,
    /// The way from each element on. [`Step::Every`] goes on with the elements of an array found there.
    pub element: Vec<Step>,
}

impl Path {
    /// Its steps; none where it has a place of its own.
    pub(crate) fn steps(&self) -> &[Step] {
        match self {
            Path::Body(steps) | Path::Header(steps) => steps,
            Path::Field(_) => &[],
        }
    }
}

/// Bytes that steps take, with their names.
pub(crate) fn step_bytes(steps: &[Step]) -> usize {
    let names = steps.iter().map(|step| match step {
        Step::Name(name) => name.len(),
        Step::Index(_) | Step::Every => 0,
    });
    size_of_val(steps) + names.sum::<usize>()
}

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A member of an object, a field of a table, a tag.
    Name(Box<str>),
    /// An element of an array, from 0 on.
    Index(u32),
    /// All elements of an array.
    Every,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident $section:ident $name:literal),* $(,)?) => {
        /// A field with a place of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {$(
            $(#[$doc])*
            $variant,
        )*}

        impl Field {
            /// All fields.
            pub const ALL: &'static [Field] = &[$(Field::$variant),*];

            /// The section in which it is written.
            #[must_use]
            pub fn section(self) -> Section {
                match self {$(Field::$variant => Section::$section),*}
            }

            /// Its name in that section.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {$(Field::$variant => $name),*}
            }
        }
    };
}

/// Where a name is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The body.
    Body,
    /// Basic properties.
    Properties,
    /// What decides about delivery.
    Header,
    /// The headers table.
    Headers,
    /// What the broker knows.
    Meta,
    /// Names that JMS gives some fields.
    Jms,
}

impl Section {
    /// The section of a word before a dot.
    #[must_use]
    pub fn of(word: &str) -> Option<Section> {
        Some(match word {
            "body" | "b" => Section::Body,
            "properties" | "p" => Section::Properties,
            "header" | "h" => Section::Header,
            "application_properties" | "application-properties" | "headers" | "a" => {
                Section::Headers
            }
            "meta" | "m" => Section::Meta,
            _ => return None,
        })
    }

    /// Its name in full.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Section::Body => "body",
            Section::Properties => "properties",
            Section::Header => "header",
            Section::Headers => "headers",
            Section::Meta => "meta",
            Section::Jms => "JMS",
        }
    }

    /// What stands before its names in the normal form.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Section::Body => "b",
            Section::Properties => "p.",
            Section::Header => "h.",
            Section::Headers => "a",
            Section::Meta => "m.",
            Section::Jms => "",
        }
    }
}

fields! {
    /// The application's id of the message.
    MessageId Properties "message_id",
    /// What a reply refers to.
    CorrelationId Properties "correlation_id",
    /// The MIME type of the body.
    ContentType Properties "content_type",
    /// The encoding of the body.
    ContentEncoding Properties "content_encoding",
    /// Where a reply goes.
    ReplyTo Properties "reply_to",
    /// The user who published.
    UserId Properties "user_id",
    /// The application's type of the message.
    Type Properties "type",
    /// The application that published.
    AppId Properties "app_id",
    /// The time to live as it was given.
    Expiration Properties "expiration",
    /// Seconds since 1970-01-01 UTC.
    Timestamp Properties "timestamp",
    /// The priority; 4 where none was given.
    Priority Header "priority",
    /// Whether the message survives a restart.
    Durable Header "durable",
    /// The time to live in milliseconds.
    Ttl Header "ttl",
    /// The exchange that it was published to.
    Exchange Meta "exchange",
    /// The key that it was published with.
    RoutingKey Meta "routing_key",
    /// Bytes of the body.
    Size Meta "size",
    /// Milliseconds since 1970-01-01 UTC when it was accepted.
    Time Meta "time",
    /// Its place in a stream.
    Offset Meta "offset",
    /// Its number in a table's changes.
    Sequence Meta "seq",
    /// Its key in a table.
    Key Meta "key",
    /// `p.timestamp` in milliseconds.
    JmsTimestamp Jms "JMSTimestamp",
    /// `'PERSISTENT'` or `'NON_PERSISTENT'`.
    JmsDeliveryMode Jms "JMSDeliveryMode",
}

impl Field {
    /// The field of that name in a section; hyphens count as underscores.
    #[must_use]
    pub fn of(section: Section, name: &str) -> Option<Field> {
        let is_same = |known: &str| {
            known.len() == name.len()
                && known
                    .bytes()
                    .zip(name.bytes())
                    .all(|(one, two)| one == two || (one == b'_' && two == b'-'))
        };
        Field::ALL.iter().copied().find(|field| field.section() == section && is_same(field.name()))
    }

    /// The field that JMS gives this name.
    #[must_use]
    pub fn of_jms(name: &str) -> Option<Field> {
        Some(match name {
            "JMSPriority" => Field::Priority,
            "JMSTimestamp" => Field::JmsTimestamp,
            "JMSType" => Field::Type,
            "JMSCorrelationID" => Field::CorrelationId,
            "JMSMessageID" => Field::MessageId,
            "JMSDeliveryMode" => Field::JmsDeliveryMode,
            _ => return None,
        })
    }
}
