//! One run of a shovel, from connecting to its end.

use super::super::amqp_json;
use super::super::body::Fields;
use super::definition::{AckMode, Definition, DeleteAfter, End as Side, without_password};
use super::stream::{self, Agent, LOOK, Stream};
use super::{Status, locked};
use lepus_amqp::client::{ClientEvent, encode_publish};
use lepus_amqp::method::{Method, basic, channel, confirm, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value as AmqpValue};
use lepus_client::Client;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CHANNEL: u16 = 1;
/// How long the destination may take to confirm.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(60);

/// How a run ended that did not fail.
pub(super) enum End {
    /// It was told to.
    Stopped,
    /// It has carried as many messages as it was for.
    Complete,
}

/// A delivery that is to be carried.
struct Message {
    tag: u64,
    exchange: String,
    routing_key: String,
    properties: Vec<u8>,
    body: Vec<u8>,
}

/// What a run needs.
pub(super) struct Course<'a> {
    pub(super) definition: &'a Definition,
    pub(super) vhost: &'a str,
    pub(super) agent: Agent<'a>,
}

fn text(error: io::Error) -> String {
    error.to_string()
}

impl Course<'_> {
    /// Carries messages until it is to stop, or has carried all.
    ///
    /// # Errors
    /// Why it does not go on.
    pub(super) fn run(&self, stop: &AtomicBool, status: &Mutex<Status>) -> Result<End, String> {
        let definition = self.definition;
        let mut source = self.connect(&definition.source, stop)?;
        let mut destination = self.connect(&definition.destination, stop)?;
        let queue = self.prepare(&mut source, &definition.source)?;
        self.prepare(&mut destination, &definition.destination)?;
        let mut left = match definition.delete_after {
            DeleteAfter::Never => None,
            DeleteAfter::Count(count) => Some(count),
            DeleteAfter::QueueLength => Some(source_length(&mut source, &queue)?),
        };
        if left == Some(0) {
            return Ok(End::Complete);
        }
        let confirms = definition.ack_mode == AckMode::OnConfirm;
        if confirms {
            destination
                .call(CHANNEL, confirm::Select { no_wait: false }, "confirm.select-ok")
                .map_err(text)?;
        }
        let no_ack = definition.ack_mode == AckMode::None;
        let prefetch_count = match left {
            Some(left) => left.min(u64::from(definition.prefetch)) as u16,
            None => definition.prefetch,
        };
        let qos = basic::Qos { prefetch_size: 0, prefetch_count, global: false };
        source.call(CHANNEL, qos, "basic.qos-ok").map_err(text)?;
        let arguments = Table::new().to_bytes();
        source.send(
            CHANNEL,
            basic::Consume {
                queue: &queue,
                consumer_tag: "",
                no_local: false,
                no_ack,
                exclusive: false,
                no_wait: false,
                arguments: arguments.as_ref(),
            },
        );
        source.flush().map_err(text)?;
        source.stream().set_patience(LOOK).map_err(text)?;
        destination.stream().set_patience(LOOK).map_err(text)?;
        {
            let mut status = locked(status);
            status.enter("running", None);
            status.remaining = left;
        }
        let mut confirmed = 0;
        loop {
            if stop.load(Ordering::Relaxed) {
                let _ = source.close();
                return Ok(End::Stopped);
            }
            let mut messages = receive(&mut source)?;
            if let Some(left) = left {
                // What is not carried goes back when the connection ends.
                messages.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            }
            let Some(last) = messages.last().map(|message| message.tag) else {
                alive(&mut destination)?;
                continue;
            };
            for message in &messages {
                self.publish(&mut destination, message)?;
            }
            destination.flush().map_err(text)?;
            if confirms {
                let first = confirmed + 1;
                confirmed += messages.len() as u64;
                wait_for_confirms(&mut destination, first..confirmed + 1)?;
            }
            if !no_ack {
                source.send(CHANNEL, basic::Ack { delivery_tag: last, multiple: true });
                source.flush().map_err(text)?;
            }
            let carried = messages.len() as u64;
            left = left.map(|left| left - carried);
            {
                let mut status = locked(status);
                status.forwarded += carried;
                status.remaining = left;
            }
            if left == Some(0) {
                let _ = source.close();
                let _ = destination.close();
                return Ok(End::Complete);
            }
        }
    }

    /// Connects to the first of an end's brokers that can be reached.
    fn connect(&self, side: &Side, stop: &AtomicBool) -> Result<Client<Stream>, String> {
        let mut last = "no address is given".to_owned();
        for uri in &side.uris {
            if stop.load(Ordering::Relaxed) {
                return Err("it is to stop".to_owned());
            }
            match stream::open(uri, self.vhost, "shovel", self.agent) {
                Ok(client) => return Ok(client),
                Err(error) => last = format!("{}: {error}", without_password(uri)),
            }
        }
        Err(last)
    }

    /// Makes sure that the queue of an end is there; its name, or that of one that was made for an exchange.
    fn prepare(&self, client: &mut Client<Stream>, side: &Side) -> Result<String, String> {
        let is_source = std::ptr::eq(side, &raw const self.definition.source);
        let arguments = side.queue_arguments.to_bytes();
        let declare = |queue, is_temporary: bool, passive| queue::Declare {
            queue,
            passive,
            durable: !is_temporary,
            exclusive: is_temporary,
            auto_delete: is_temporary,
            no_wait: false,
            arguments: arguments.as_ref(),
        };
        match (&side.queue, &side.exchange) {
            (Some(name), _) => {
                if client.count(CHANNEL, declare(name, false, true)).is_ok() {
                    return Ok(name.clone());
                }
                if side.is_predeclared {
                    return Err(format!("there is no queue {name:?}"));
                }
                // The broker has closed the channel for the question.
                client.send(CHANNEL, channel::CloseOk {});
                client.open_channel(CHANNEL).map_err(text)?;
                let declared = declare(name, false, false);
                client.call(CHANNEL, declared, "queue.declare-ok").map_err(text)?;
                Ok(name.clone())
            }
            (None, Some(exchange)) if is_source => {
                client.send(CHANNEL, declare("", true, false));
                client.flush().map_err(text)?;
                let name = client.wait(|event| match event {
                    ClientEvent::Method { method: Method::QueueDeclareOk(ok), .. } => {
                        Some(ok.queue.to_owned())
                    }
                    _ => None,
                });
                let name = name.map_err(text)?;
                let key = side.exchange_key.as_deref().unwrap_or_default();
                let none = Table::new().to_bytes();
                let bind = queue::Bind {
                    queue: &name,
                    exchange,
                    routing_key: key,
                    no_wait: false,
                    arguments: none.as_ref(),
                };
                client.call(CHANNEL, bind, "queue.bind-ok").map_err(text)?;
                Ok(name)
            }
            (None, None) if is_source => {
                Err("neither src-queue nor src-exchange is given".to_owned())
            }
            _ => Ok(String::new()),
        }
    }

    fn publish(&self, to: &mut Client<Stream>, message: &Message) -> Result<(), String> {
        let side = &self.definition.destination;
        let (exchange, key) = match (&side.queue, &side.exchange) {
            (Some(queue), _) => ("", queue.as_str()),
            (None, Some(exchange)) => {
                let key = side.exchange_key.as_deref().unwrap_or(&message.routing_key);
                (exchange.as_str(), key)
            }
            (None, None) => {
                let key = side.exchange_key.as_deref().unwrap_or(&message.routing_key);
                (message.exchange.as_str(), key)
            }
        };
        let frame_max = to.frame_max();
        let properties = self.properties(message)?;
        let mandatory = side.queue.is_some();
        encode_publish(
            to.output(),
            CHANNEL,
            frame_max,
            exchange,
            key,
            mandatory,
            &properties,
            &message.body,
        );
        Ok(())
    }

    /// A message's properties, with what the shovel sets and adds.
    fn properties(&self, message: &Message) -> Result<Vec<u8>, String> {
        let definition = self.definition;
        let is_plain = definition.properties.is_empty()
            && !definition.adds_forward_headers
            && !definition.adds_timestamp_header;
        if is_plain {
            return Ok(message.properties.clone());
        }
        let mut own = Properties::decode(&message.properties).unwrap_or_default();
        let set = Fields::of(&Value::Object(definition.properties.clone()));
        let set = amqp_json::read_properties(&set).map_err(|failure| failure.reason)?;
        macro_rules! take {
            ($($field:ident),*) => { $(if set.$field.is_some() { own.$field = set.$field; })* };
        }
        take!(content_type, content_encoding, headers, delivery_mode, priority, correlation_id);
        take!(
            reply_to,
            expiration,
            message_id,
            timestamp,
            message_type,
            user_id,
            app_id,
            cluster_id
        );
        let headers = own.headers.get_or_insert_with(Table::new);
        if definition.adds_forward_headers {
            let uri = |side: &Side| {
                side.uris.first().map(|uri| without_password(uri)).unwrap_or_default()
            };
            let told = Table::new()
                .with("shovelled-by", self.agent.broker.node().cluster.as_str())
                .with("shovel-type", "dynamic")
                .with("shovel-vhost", self.vhost)
                .with("src-uri", uri(&definition.source).as_str())
                .with("dest-uri", uri(&definition.destination).as_str())
                .with("src-queue", definition.source.queue.as_deref().unwrap_or_default())
                .with("dest-queue", definition.destination.queue.as_deref().unwrap_or_default());
            let mut all = match headers.remove("x-shovelled") {
                Some(AmqpValue::Array(all)) => all,
                _ => Vec::new(),
            };
            all.insert(0, AmqpValue::Table(told));
            headers.insert("x-shovelled", AmqpValue::Array(all));
        }
        if definition.adds_timestamp_header {
            headers.insert("x-shovelled-timestamp", AmqpValue::I64(super::now() as i64));
        }
        Ok(own.to_bytes())
    }
}

/// Messages that are ready in the source's queue.
fn source_length(source: &mut Client<Stream>, queue: &str) -> Result<u64, String> {
    let none = Table::new().to_bytes();
    let passive = queue::Declare {
        queue,
        passive: true,
        durable: true,
        exclusive: false,
        auto_delete: false,
        no_wait: false,
        arguments: none.as_ref(),
    };
    source.count(CHANNEL, passive).map_err(text)
}

/// Whether nothing came in the time that a read waits.
fn is_quiet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The channel was closed, or the consumer cancelled.
fn ended(method: &Method<'_>) -> Option<io::Error> {
    match method {
        Method::ChannelClose(close) => {
            let (code, text) = (close.reply_code, close.reply_text);
            Some(io::Error::other(format!("the channel was closed: {code} {text}")))
        }
        Method::BasicCancel(_) => Some(io::Error::other("the queue was deleted")),
        _ => None,
    }
}

/// What has come from the source; nothing when nothing comes for a moment.
fn receive(source: &mut Client<Stream>) -> Result<Vec<Message>, String> {
    let mut messages = Vec::new();
    let received = source.receive(&mut |event, _| match event {
        ClientEvent::Content {
            method: Method::BasicDeliver(deliver), properties, body, ..
        } => {
            messages.push(Message {
                tag: deliver.delivery_tag,
                exchange: deliver.exchange.to_owned(),
                routing_key: deliver.routing_key.to_owned(),
                properties: properties.to_vec(),
                body: body.to_vec(),
            });
            Ok(())
        }
        ClientEvent::Method { method, .. } => ended(&method).map_or(Ok(()), Err),
        _ => Ok(()),
    });
    match received {
        Ok(()) => Ok(messages),
        Err(error) if is_quiet(&error) => Ok(messages),
        Err(error) => Err(text(error)),
    }
}

/// Looks whether the destination is still there.
fn alive(destination: &mut Client<Stream>) -> Result<(), String> {
    let quick = Duration::from_millis(1);
    destination.stream().set_patience(quick).map_err(text)?;
    let received = destination.receive(&mut |event, _| match event {
        ClientEvent::Method { method, .. } => ended(&method).map_or(Ok(()), Err),
        _ => Ok(()),
    });
    destination.stream().set_patience(LOOK).map_err(text)?;
    match received {
        Err(error) if !is_quiet(&error) => Err(text(error)),
        _ => Ok(()),
    }
}

/// Waits until the destination has confirmed what has these numbers. A message that it does not take ends the run, and
/// goes back to its queue.
fn wait_for_confirms(destination: &mut Client<Stream>, numbers: Range<u64>) -> Result<(), String> {
    let begun = Instant::now();
    let mut waiting: BTreeSet<u64> = numbers.collect();
    while !waiting.is_empty() {
        let received = destination.receive(&mut |event, _| match event {
            ClientEvent::Method { method: Method::BasicAck(ack), .. } => {
                match ack.multiple {
                    true => waiting.retain(|number| *number > ack.delivery_tag),
                    false => drop(waiting.remove(&ack.delivery_tag)),
                }
                Ok(())
            }
            ClientEvent::Method { method: Method::BasicNack(_), .. } => {
                Err(io::Error::other("the destination does not take a message"))
            }
            ClientEvent::Content { method: Method::BasicReturn(_), .. } => {
                Err(io::Error::other("the destination's queue is gone"))
            }
            ClientEvent::Method { method, .. } => ended(&method).map_or(Ok(()), Err),
            _ => Ok(()),
        });
        if let Err(error) = received
            && !is_quiet(&error)
        {
            return Err(text(error));
        }
        if begun.elapsed() > CONFIRM_TIMEOUT {
            return Err("the destination does not confirm".to_owned());
        }
    }
    Ok(())
}
