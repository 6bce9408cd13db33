//! What is done with messages, through AMQP as the user who asks: with that user's permissions and limits.

use super::Running;
use super::context::Context;
use super::failure::Failure;
use lepus_amqp::client::{ClientEvent, ClientOptions, encode_publish};
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{Method, basic, confirm, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_client::Client;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The capability of a connection whose transactions are refused as a whole where one of their messages would not be taken.
/// What it gives back counts as no attempt at a message, and its consumers only look in: a queue is not attended by them.
pub(crate) const WHOLE_TRANSACTIONS: &str = "lepus.whole_transactions";
/// How long the broker may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The only channel that is used.
const CHANNEL: u16 = 1;

/// A message that was taken from a queue.
#[derive(Debug)]
pub(crate) struct Got {
    /// Its number on the channel.
    pub(crate) tag: u64,
    pub(crate) redelivered: bool,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    /// Messages that were left in the queue.
    pub(crate) message_count: u32,
    pub(crate) properties: Properties,
    pub(crate) body: Vec<u8>,
    /// The properties as they came.
    pub(crate) properties_bytes: Vec<u8>,
}

impl Got {
    /// About what it takes.
    pub(crate) fn bytes(&self) -> usize {
        // Headers as JSON are larger than on the wire.
        self.body.len() + 4 * self.properties_bytes.len()
    }
}

/// What becomes of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    Routed,
    Unroutable,
    /// The queue does not take it.
    Rejected,
}

/// A user of the broker, and where that one is.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) user: String,
    peer: SocketAddr,
}

impl Account {
    /// Whoever asks. The operator is any administrator who has permissions in the virtual host.
    ///
    /// # Errors
    /// 400 where there is none.
    pub(crate) fn of(context: &Context<'_>, vhost: &str) -> Result<Account, Failure> {
        let user = match &context.login.user {
            Some(user) => user.clone(),
            None => context.api.broker.user_in(vhost).map_err(Failure::bad_request)?,
        };
        // The operator comes from this machine.
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Ok(Account { user, peer: context.login.peer.unwrap_or(nobody) })
    }
}

/// Opens a connection as a user, under a name that operators see, which claims these capabilities beside the usual ones.
///
/// # Errors
/// What the broker refuses.
pub(crate) fn connect(
    broker: &dyn Running,
    account: &Account,
    vhost: &str,
    name: &str,
    capabilities: &[&str],
) -> io::Result<Client<UnixStream>> {
    let stream = broker.connect(&account.user, account.peer)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let base = ClientOptions::default();
    let mut all = match base.properties.get("capabilities") {
        Some(Value::Table(usual)) => usual.clone(),
        _ => Table::new(),
    };
    for &capability in capabilities {
        all.insert(capability, true);
    }
    let options = ClientOptions {
        user: account.user.clone(),
        password: String::new(),
        vhost: vhost.to_owned(),
        mechanism: "EXTERNAL".to_owned(),
        heartbeat: 0,
        properties: Table::new().with("connection_name", name).with("capabilities", all),
        ..base
    };
    Client::open(stream, options)
}

/// A name that nobody can guess and nothing else has.
///
/// # Errors
/// In words, when the system has no random bytes.
pub(crate) fn random_name(broker: &dyn Running) -> Result<String, String> {
    Ok(broker.random()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A connection in a virtual host.
pub(crate) struct Session {
    client: Client<UnixStream>,
}

/// How a step ended.
enum Step<T> {
    Done(T),
    /// The broker closed the channel.
    Refused(u16, String),
    /// Publishers are held back.
    Blocked,
}

impl Session {
    /// Logs in as the user who asks. The operator is any administrator who has permissions in the virtual host.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) fn open(context: &Context<'_>, vhost: &str) -> Result<Session, Failure> {
        Session::open_with(context, vhost, &[])
    }

    /// The same with further capabilities.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) fn open_with(
        context: &Context<'_>,
        vhost: &str,
        capabilities: &[&str],
    ) -> Result<Session, Failure> {
        let account = Account::of(context, vhost)?;
        let broker = &*context.api.broker;
        let opened = connect(broker, &account, vhost, "management API", capabilities);
        let opened = opened.and_then(|mut client| {
            client.open_channel(CHANNEL)?;
            Ok(client)
        });
        opened.map(|client| Session { client }).map_err(|error| failure(&error))
    }

    /// Closes the connection in order.
    pub(crate) fn close(self) {
        // Nothing depends on it: the broker ends a connection whose socket is closed.
        let _ = self.client.close();
    }

    fn wait<T>(
        &mut self,
        mut look: impl FnMut(&ClientEvent<'_>) -> Option<T>,
    ) -> Result<T, Failure> {
        let step = self.client.flush().and_then(|()| {
            self.client.wait(|event| match event {
                ClientEvent::Method { method: Method::ChannelClose(close), .. } => {
                    Some(Step::Refused(close.reply_code, close.reply_text.to_owned()))
                }
                ClientEvent::Blocked(_) => Some(Step::Blocked),
                event => look(event).map(Step::Done),
            })
        });
        match step {
            Ok(Step::Done(found)) => Ok(found),
            Ok(Step::Refused(code, text)) => Err(refused(code, &text)),
            Ok(Step::Blocked) => Err(Failure::unavailable(
                "publishers are held back, memory or disk is short: the message may or may not be taken",
            )),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Publishes a message and waits until it is taken.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) fn publish(
        &mut self,
        exchange: &str,
        routing_key: &str,
        properties: &Properties,
        body: &[u8],
    ) -> Result<Published, Failure> {
        self.client.send(CHANNEL, confirm::Select { no_wait: false });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::ConfirmSelectOk(_), .. } => Some(()),
            _ => None,
        })?;
        let frame_max = self.client.frame_max();
        let properties = properties.to_bytes();
        let out = self.client.output();
        encode_publish(out, CHANNEL, frame_max, exchange, routing_key, true, &properties, body);
        let mut was_returned = false;
        self.wait(|event| match event {
            ClientEvent::Content { method: Method::BasicReturn(_), .. } => {
                was_returned = true;
                None
            }
            ClientEvent::Method { method: Method::BasicAck(_), .. } if was_returned => {
                Some(Published::Unroutable)
            }
            ClientEvent::Method { method: Method::BasicAck(_), .. } => Some(Published::Routed),
            ClientEvent::Method { method: Method::BasicNack(_), .. } => Some(Published::Rejected),
            _ => None,
        })
    }

    /// Takes the next message of a queue.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) fn get(&mut self, queue: &str, no_ack: bool) -> Result<Option<Got>, Failure> {
        self.client.send(CHANNEL, basic::Get { queue, no_ack });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::BasicGetEmpty(_), .. } => Some(None),
            ClientEvent::Content { method: Method::BasicGetOk(ok), properties, body, .. } => {
                Some(Some(Got {
                    tag: ok.delivery_tag,
                    redelivered: ok.redelivered,
                    exchange: ok.exchange.to_owned(),
                    routing_key: ok.routing_key.to_owned(),
                    message_count: ok.message_count,
                    properties: Properties::decode(properties).unwrap_or_default(),
                    body: body.to_vec(),
                    properties_bytes: properties.to_vec(),
                }))
            }
            _ => None,
        })
    }

    /// Ends a message that was got: it is done with, or rejected for good.
    pub(crate) fn end(&mut self, delivery_tag: u64, is_done: bool) {
        match is_done {
            true => self.client.send(CHANNEL, basic::Ack { delivery_tag, multiple: false }),
            false => self.client.send(CHANNEL, basic::Reject { delivery_tag, requeue: false }),
        }
    }

    /// Has the broker put everything back to its place that was got and not ended.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) fn put_back(&mut self) -> Result<(), Failure> {
        self.client.send(CHANNEL, basic::Recover { requeue: true });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::BasicRecoverOk(_), .. } => Some(()),
            _ => None,
        })
    }

    /// Gives all back that was got, to be `requeue`d or not.
    pub(crate) fn give_back(&mut self, requeue: bool) {
        self.client.send(CHANNEL, basic::Nack { delivery_tag: 0, multiple: true, requeue });
    }

    /// Takes all ready messages out of a queue.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) fn purge(&mut self, queue: &str) -> Result<(), Failure> {
        self.client.send(CHANNEL, queue::Purge { queue, no_wait: false });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::QueuePurgeOk(_), .. } => Some(()),
            _ => None,
        })
    }

    /// Deletes a queue, under these conditions.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) fn delete_queue(
        &mut self,
        queue: &str,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<(), Failure> {
        self.client.send(CHANNEL, queue::Delete { queue, if_unused, if_empty, no_wait: false });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::QueueDeleteOk(_), .. } => Some(()),
            _ => None,
        })
    }
}

/// What the broker closed a channel with.
fn refused(code: u16, text: &str) -> Failure {
    match ReplyCode(code) {
        ReplyCode::NOT_FOUND => Failure::not_found(),
        ReplyCode::ACCESS_REFUSED => Failure::not_authorised(text),
        _ => Failure::bad_request(format!("{code} {text}")),
    }
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::unavailable(format!(
            "the broker did not answer within {} s",
            PATIENCE.as_secs()
        )),
        // It closed the connection and said why.
        ErrorKind::Other => Failure::bad_request(error.to_string()),
        _ => Failure::unavailable(error.to_string()),
    }
}
