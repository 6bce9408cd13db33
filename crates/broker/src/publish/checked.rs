//! What the properties of a publish say to the broker.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_amqp::properties::PropertiesRef;
use lepus_amqp::table::{Table, Value};

use crate::channel::HeldPublish;
use crate::mail::{ChannelRef, Terms};
use crate::properties::{BCC, CC, owned_headers, take_keys};
use crate::queue::TIMER_MILLIS_MAX;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::Publish;

/// Flag bits of properties that the broker must look at: headers, priority, reply-to,
/// expiration, user-id (AMQP 0-9-1, section 4.2.6.1: first property in the highest bit).
pub(crate) const LOOKED_AT: u16 = 0x2000 | 0x0800 | 0x0200 | 0x0100 | 0x0010;
/// Those of them with which a message may still go the way of the one before: priority, and headers of which none
/// [is read](is_read).
const HARMLESS: u16 = 0x2000 | 0x0800;
/// The header that tells a delayed exchange how long to hold a message back, in milliseconds.
const X_DELAY: &str = "x-delay";

/// A publish after all checks that do not depend on where it goes.
pub(crate) struct Checked<'a> {
    /// The properties to store, rewritten where a rule says so.
    pub properties: Cow<'a, [u8]>,
    /// Delivery mode 2.
    pub persistent: bool,
    /// 0 without one.
    pub priority: u8,
    /// The message's own time to live.
    pub expiration: Option<Duration>,
    /// Routing keys of `CC` and `BCC`.
    pub extra_keys: Vec<String>,
    /// How long a delayed exchange holds it.
    pub delay: Option<Duration>,
    /// The logs have room for it, and it is to go to all its queues at once.
    pub has_room: bool,
}

/// The priority of a message of which nothing else matters to where it goes, nor to what is stored but the delivery
/// mode; `None` where something does. The properties are well-formed.
#[inline(always)] // It is asked for each message of a row.
pub(crate) fn plain_priority(properties: PropertiesRef<'_>) -> Option<u8> {
    let looked_at = properties.flags() & LOOKED_AT;
    if looked_at == 0 {
        return Some(0);
    }
    if looked_at & !HARMLESS != 0 {
        return None;
    }
    let headers = properties.headers().unwrap_or_default();
    let is_plain = !headers.iter().any(|(name, _)| is_read(name));
    is_plain.then(|| properties.priority().unwrap_or(0))
}

impl<'a> Checked<'a> {
    /// With properties of which nothing but the delivery mode and this priority matters.
    #[inline]
    pub(crate) fn plain(properties: &'a [u8], priority: u8) -> Checked<'a> {
        Checked {
            properties: Cow::Borrowed(properties),
            persistent: PropertiesRef(properties).is_persistent(),
            priority,
            expiration: None,
            extra_keys: Vec::new(),
            delay: None,
            has_room: false,
        }
    }

    /// What a transaction holds, which was checked when it came. With `has_room` it is published in one go.
    pub(crate) fn held(held: &HeldPublish, has_room: bool) -> Checked<'_> {
        let properties = PropertiesRef(&held.properties);
        let headers = owned_headers(properties);
        Checked {
            properties: Cow::Borrowed(&held.properties),
            persistent: properties.is_persistent(),
            priority: properties.priority().unwrap_or(0),
            expiration: properties.expiration().and_then(|text| parse_expiration(text).ok()),
            extra_keys: held.extra_keys.clone(),
            delay: delay_of(&headers).unwrap_or_default(),
            has_room,
        }
    }

    /// Has a transaction hold the message, with what is to be stored of it.
    pub(crate) fn hold(self, publish: &Publish<'_>) -> HeldPublish {
        HeldPublish {
            exchange: publish.exchange.into(),
            routing_key: publish.routing_key.into(),
            mandatory: publish.mandatory,
            extra_keys: self.extra_keys,
            properties: self.properties.into_owned(),
            body: publish.body.to_vec(),
        }
    }

    /// With what it is put into queues. With a `number` its channel is told what becomes of it.
    #[inline]
    pub(crate) fn terms(&self, from: ChannelRef, number: Option<u64>) -> Terms {
        Terms {
            persistent: self.persistent,
            priority: self.priority,
            expiration: self.expiration,
            from,
            number,
        }
    }
}

impl Checked<'_> {
    /// Takes over what headers say to the broker; the headers to store, where these are others.
    ///
    /// # Errors
    /// 406 where one of them has a type of no meaning.
    pub(crate) fn read_headers(
        &mut self,
        properties: PropertiesRef<'_>,
        delayed: bool,
    ) -> Result<Option<Table>, Refusal> {
        let headers = properties.headers().unwrap_or_default();
        if !headers.iter().any(|(name, _)| is_read(name)) {
            return Ok(None);
        }
        let mut table = headers.to_owned();
        let has_hidden = table.get(BCC).is_some();
        self.extra_keys = take_keys(&mut table).map_err(|name| {
            let found = table.get(name).map_or("void", Value::type_name);
            let text = format!(
                "unsupported type in header '{name}': {found}; an array of long strings is needed"
            );
            Refusal::new(RefusalKind::PreconditionFailed, text)
        })?;
        if delayed {
            self.delay = delay_of(&table)?;
        }
        Ok(has_hidden.then_some(table))
    }
}

/// Whether a header of this name means something to the broker. Without one no header is copied.
fn is_read(name: &str) -> bool {
    matches!(name, CC | BCC | X_DELAY)
}

/// Milliseconds of an `expiration`: a string of digits.
///
/// # Errors
/// 406 where it is none.
pub(crate) fn parse_expiration(text: &[u8]) -> Result<Duration, Refusal> {
    let millis = core::str::from_utf8(text)
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse::<u64>().ok())
        .filter(|&millis| millis <= TIMER_MILLIS_MAX);
    millis.map(Duration::from_millis).ok_or_else(|| {
        let text = String::from_utf8_lossy(text);
        let text = format!(
            "invalid expiration '{text}': a string of digits, milliseconds up to {TIMER_MILLIS_MAX}"
        );
        Refusal::new(RefusalKind::PreconditionFailed, text)
    })
}

/// The `x-delay` header of a message for a delayed exchange.
///
/// # Errors
/// 406 where it is no number.
pub(crate) fn delay_of(headers: &Table) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(X_DELAY) else { return Ok(None) };
    let millis = value.as_integer().or_else(|| value.as_text()?.parse().ok());
    match millis {
        Some(millis) if millis > 0 => Ok(Some(Duration::from_millis(millis as u64))),
        Some(_) => Ok(None),
        None => {
            let text =
                format!("invalid x-delay header: {}; milliseconds are needed", value.type_name());
            Err(Refusal::new(RefusalKind::PreconditionFailed, text))
        }
    }
}
