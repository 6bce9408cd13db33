//! Methods (AMQP 0-9-1 with RabbitMQ's additions), generated from one table.
//!
//! A line of the table names a method's structure, its number, its name on the wire and its
//! arguments. The Rust type of an argument decides how it is encoded: `bool` is a bit (bits that
//! follow each other share an octet), `&str` a short string, `&[u8]` a long string, [`TableRef`] a
//! field table, integers are themselves. What stands in square brackets is reserved by the
//! specification: it is skipped when it comes and sent as zero.

use crate::code::ReplyCode;
use crate::error::{Malformed, ProtocolError};
use crate::frame::{self, FrameKind};
use crate::table::TableRef;
use crate::wire::{Argument, Reader, Writer};
use alloc::format;
use alloc::vec::Vec;

/// The arguments of one method.
trait Arguments<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed>;
    fn write(&self, writer: &mut Writer<'_>);
}

macro_rules! methods {
    ($(
        $(#[$class_doc:meta])*
        class $class:ident = $class_id:literal {$(
            $(#[$doc:meta])*
            $variant:ident $name:ident $(<$life:lifetime>)? = $id:literal $wire:literal
            [$($before:ty),*] { $($field:ident: $ty:ty),* } [$($after:ty),*];
        )*}
    )*) => {
        $(
            $(#[$class_doc])*
            pub mod $class {
                #[allow(unused_imports)]
                use super::{Argument, Arguments, Malformed, Reader, TableRef, Writer};

                /// The number of the class.
                pub const CLASS_ID: u16 = $class_id;

                $(
                    #[doc = concat!("`", $wire, "`")]
                    ///
                    $(#[$doc])*
                    #[derive(Clone, Copy, Debug, Default, PartialEq)]
                    pub struct $name $(<$life>)? {
                        $(
                            #[doc = concat!("The argument `", stringify!($field), "`.")]
                            pub $field: $ty,
                        )*
                    }

                    impl $(<$life>)? $name $(<$life>)? {
                        /// The number of the method in its class.
                        pub const METHOD_ID: u16 = $id;
                    }

                    impl<'a> Arguments<'a> for $name $(<$life>)? {
                        #[inline]
                        #[allow(unused_variables)]
                        fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
                            $(<$before as Argument>::read(reader)?;)*
                            $(let $field = Argument::read(reader)?;)*
                            $(<$after as Argument>::read(reader)?;)*
                            Ok(Self { $($field),* })
                        }

                        #[allow(unused_variables)]
                        fn write(&self, writer: &mut Writer<'_>) {
                            $(<$before as Default>::default().write(writer);)*
                            $(self.$field.write(writer);)*
                            $(<$after as Default>::default().write(writer);)*
                        }
                    }
                )*
            }
        )*

        /// Any method with its arguments, which are still in the buffer they came in.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Method<'a> {
            $($(
                #[doc = concat!("`", $wire, "`")]
                $variant($class::$name $(<$life>)?),
            )*)*
        }

        impl<'a> Method<'a> {
            fn decode_arguments(
                class_id: u16,
                method_id: u16,
                reader: &mut Reader<'a>,
            ) -> Option<Result<Method<'a>, Malformed>> {
                Some(match (class_id, method_id) {
                    $($(
                        ($class_id, $id) => $class::$name::read(reader).map(Method::$variant),
                    )*)*
                    _ => return None,
                })
            }

            fn encode_arguments(&self, writer: &mut Writer<'_>) {
                match self {
                    $($(Method::$variant(arguments) => arguments.write(writer),)*)*
                }
            }

            /// The numbers of class and method.
            #[must_use]
            pub fn ids(&self) -> (u16, u16) {
                match self {
                    $($(Method::$variant(_) => ($class_id, $id),)*)*
                }
            }

            /// The name as the specification writes it, `basic.publish`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $($(Method::$variant(_) => $wire,)*)*
                }
            }
        }

        $($(
            impl<'a> From<$class::$name $(<$life>)?> for Method<'a> {
                fn from(arguments: $class::$name $(<$life>)?) -> Method<'a> {
                    Method::$variant(arguments)
                }
            }
        )*)*

        /// All methods: class, method, name.
        #[cfg(test)]
        const METHODS: &[(u16, u16, &str)] = &[$($(($class_id, $id, $wire),)*)*];
    };
}

impl<'a> Method<'a> {
    /// Decodes a method frame's payload. Bytes behind the last argument are ignored.
    ///
    /// # Errors
    /// `NOT_IMPLEMENTED` (540) for an unknown class or method, `SYNTAX_ERROR` (502) for malformed
    /// arguments and for a payload that is too short.
    pub fn decode(payload: &'a [u8]) -> Result<Method<'a>, ProtocolError> {
        let mut reader = Reader::new(payload);
        let class_id = reader.u16()?;
        let method_id = reader.u16()?;
        match Method::decode_arguments(class_id, method_id, &mut reader) {
            Some(Ok(method)) => Ok(method),
            Some(Err(malformed)) => {
                Err(ProtocolError::from(malformed).caused_by(class_id, method_id))
            }
            None => Err(ProtocolError::new(
                ReplyCode::NOT_IMPLEMENTED,
                format!("unknown method {method_id} of class {class_id}"),
            )
            .caused_by(class_id, method_id)),
        }
    }

    /// The number of the class.
    #[must_use]
    pub fn class_id(&self) -> u16 {
        self.ids().0
    }

    /// The number of the method in its class.
    #[must_use]
    pub fn method_id(&self) -> u16 {
        self.ids().1
    }

    /// Whether a content header and a body follow the method.
    #[must_use]
    pub fn has_content(&self) -> bool {
        matches!(
            self,
            Method::BasicPublish(_)
                | Method::BasicReturn(_)
                | Method::BasicDeliver(_)
                | Method::BasicGetOk(_)
        )
    }

    /// Appends the method as a frame.
    pub fn encode_frame(&self, channel: u16, out: &mut Vec<u8>) {
        let start = out.len();
        frame::write_head(out, FrameKind::Method, channel, 0);
        let (class_id, method_id) = self.ids();
        let mut writer = Writer::new(out);
        writer.raw(&class_id.to_be_bytes());
        writer.raw(&method_id.to_be_bytes());
        self.encode_arguments(&mut writer);
        let payload_bytes = (out.len() - start - frame::HEAD_BYTES) as u32;
        out[start + 3..start + 7].copy_from_slice(&payload_bytes.to_be_bytes());
        out.push(frame::END);
    }
}

/// Recognises a whole frame of `basic.ack`, the other method that comes with every message: its
/// channel and arguments. The frame is [`ACK_FRAME_BYTES`] long.
#[inline]
pub(crate) fn decode_ack_frame(bytes: &[u8]) -> Option<(u16, basic::Ack)> {
    const METHOD: u8 = FrameKind::Method as u8;
    let frame = bytes.first_chunk::<ACK_FRAME_BYTES>()?;
    let &[METHOD, c1, c0, 0, 0, 0, 13, 0, 60, 0, 80, ref tag @ .., bits, frame::END] = frame else {
        return None;
    };
    let ack = basic::Ack { delivery_tag: u64::from_be_bytes(*tag), multiple: bits & 1 == 1 };
    Some((u16::from_be_bytes([c1, c0]), ack))
}

/// Bytes of a frame of `basic.ack`.
pub(crate) const ACK_FRAME_BYTES: usize = 21;

/// Decodes the arguments of `basic.publish`, which come with every message.
#[inline]
pub(crate) fn decode_publish(arguments: &[u8]) -> Result<basic::Publish<'_>, Malformed> {
    Arguments::read(&mut Reader::new(arguments))
}

/// Decodes the arguments of `basic.deliver`, which come with every message.
#[inline]
pub(crate) fn decode_deliver(arguments: &[u8]) -> Result<basic::Deliver<'_>, Malformed> {
    Arguments::read(&mut Reader::new(arguments))
}

methods! {
    /// Class connection: what concerns the connection as a whole.
    class connection = 10 {
        /// The server's greeting.
        ConnectionStart Start<'a> = 10 "connection.start" [] {
            version_major: u8, version_minor: u8, server_properties: TableRef<'a>,
            mechanisms: &'a [u8], locales: &'a [u8]
        } [];
        /// The client's choice of a mechanism and its first response.
        ConnectionStartOk StartOk<'a> = 11 "connection.start-ok" [] {
            client_properties: TableRef<'a>, mechanism: &'a str, response: &'a [u8], locale: &'a str
        } [];
        /// A challenge of a mechanism with several steps.
        ConnectionSecure Secure<'a> = 20 "connection.secure" [] { challenge: &'a [u8] } [];
        /// The response to a challenge.
        ConnectionSecureOk SecureOk<'a> = 21 "connection.secure-ok" [] { response: &'a [u8] } [];
        /// The server's limits; heartbeat in seconds.
        ConnectionTune Tune = 30 "connection.tune" [] {
            channel_max: u16, frame_max: u32, heartbeat: u16
        } [];
        /// The limits that hold from now on; heartbeat in seconds.
        ConnectionTuneOk TuneOk = 31 "connection.tune-ok" [] {
            channel_max: u16, frame_max: u32, heartbeat: u16
        } [];
        /// Opens a virtual host.
        ConnectionOpen Open<'a> = 40 "connection.open" [] { virtual_host: &'a str } [&str, bool];
        /// The virtual host is open.
        ConnectionOpenOk OpenOk = 41 "connection.open-ok" [] {} [&str];
        /// Ends the connection.
        ConnectionClose Close<'a> = 50 "connection.close" [] {
            reply_code: u16, reply_text: &'a str, class_id: u16, method_id: u16
        } [];
        /// The last method of a connection.
        ConnectionCloseOk CloseOk = 51 "connection.close-ok" [] {} [];
        /// The server reads no more from this connection, which publishes.
        ConnectionBlocked Blocked<'a> = 60 "connection.blocked" [] { reason: &'a str } [];
        /// The server reads again.
        ConnectionUnblocked Unblocked = 61 "connection.unblocked" [] {} [];
        /// New credentials for a living connection.
        ConnectionUpdateSecret UpdateSecret<'a> = 70 "connection.update-secret" [] {
            new_secret: &'a [u8], reason: &'a str
        } [];
        /// The new credentials hold.
        ConnectionUpdateSecretOk UpdateSecretOk = 71 "connection.update-secret-ok" [] {} [];
    }

    /// Class channel.
    class channel = 20 {
        /// Opens a channel.
        ChannelOpen Open = 10 "channel.open" [] {} [&str];
        /// The channel is open.
        ChannelOpenOk OpenOk = 11 "channel.open-ok" [] {} [&[u8]];
        /// Stops or starts the flow of contents.
        ChannelFlow Flow = 20 "channel.flow" [] { active: bool } [];
        /// Says which flow holds now.
        ChannelFlowOk FlowOk = 21 "channel.flow-ok" [] { active: bool } [];
        /// Ends a channel.
        ChannelClose Close<'a> = 40 "channel.close" [] {
            reply_code: u16, reply_text: &'a str, class_id: u16, method_id: u16
        } [];
        /// The channel is closed.
        ChannelCloseOk CloseOk = 41 "channel.close-ok" [] {} [];
    }

    /// Class access, which only old clients use.
    class access = 30 {
        /// Asks for an access ticket.
        AccessRequest Request<'a> = 10 "access.request" [] {
            realm: &'a str, exclusive: bool, passive: bool, active: bool, write: bool, read: bool
        } [];
        /// Grants an access ticket.
        AccessRequestOk RequestOk = 11 "access.request-ok" [] { ticket: u16 } [];
    }

    /// Class exchange.
    class exchange = 40 {
        /// Makes an exchange, or checks that it is there.
        ExchangeDeclare Declare<'a> = 10 "exchange.declare" [u16] {
            exchange: &'a str, r#type: &'a str, passive: bool, durable: bool, auto_delete: bool,
            internal: bool, no_wait: bool, arguments: TableRef<'a>
        } [];
        /// The exchange is there.
        ExchangeDeclareOk DeclareOk = 11 "exchange.declare-ok" [] {} [];
        /// Deletes an exchange.
        ExchangeDelete Delete<'a> = 20 "exchange.delete" [u16] {
            exchange: &'a str, if_unused: bool, no_wait: bool
        } [];
        /// The exchange is gone.
        ExchangeDeleteOk DeleteOk = 21 "exchange.delete-ok" [] {} [];
        /// Binds an exchange to another.
        ExchangeBind Bind<'a> = 30 "exchange.bind" [u16] {
            destination: &'a str, source: &'a str, routing_key: &'a str, no_wait: bool,
            arguments: TableRef<'a>
        } [];
        /// The binding is there.
        ExchangeBindOk BindOk = 31 "exchange.bind-ok" [] {} [];
        /// Removes a binding between exchanges.
        ExchangeUnbind Unbind<'a> = 40 "exchange.unbind" [u16] {
            destination: &'a str, source: &'a str, routing_key: &'a str, no_wait: bool,
            arguments: TableRef<'a>
        } [];
        /// The binding is gone.
        ExchangeUnbindOk UnbindOk = 51 "exchange.unbind-ok" [] {} [];
    }

    /// Class queue.
    class queue = 50 {
        /// Makes a queue, or checks that it is there.
        QueueDeclare Declare<'a> = 10 "queue.declare" [u16] {
            queue: &'a str, passive: bool, durable: bool, exclusive: bool, auto_delete: bool,
            no_wait: bool, arguments: TableRef<'a>
        } [];
        /// The queue is there.
        QueueDeclareOk DeclareOk<'a> = 11 "queue.declare-ok" [] {
            queue: &'a str, message_count: u32, consumer_count: u32
        } [];
        /// Binds a queue to an exchange.
        QueueBind Bind<'a> = 20 "queue.bind" [u16] {
            queue: &'a str, exchange: &'a str, routing_key: &'a str, no_wait: bool,
            arguments: TableRef<'a>
        } [];
        /// The binding is there.
        QueueBindOk BindOk = 21 "queue.bind-ok" [] {} [];
        /// Drops all ready messages.
        QueuePurge Purge<'a> = 30 "queue.purge" [u16] { queue: &'a str, no_wait: bool } [];
        /// Says how many were dropped.
        QueuePurgeOk PurgeOk = 31 "queue.purge-ok" [] { message_count: u32 } [];
        /// Deletes a queue.
        QueueDelete Delete<'a> = 40 "queue.delete" [u16] {
            queue: &'a str, if_unused: bool, if_empty: bool, no_wait: bool
        } [];
        /// The queue is gone, with so many messages.
        QueueDeleteOk DeleteOk = 41 "queue.delete-ok" [] { message_count: u32 } [];
        /// Removes a binding.
        QueueUnbind Unbind<'a> = 50 "queue.unbind" [u16] {
            queue: &'a str, exchange: &'a str, routing_key: &'a str, arguments: TableRef<'a>
        } [];
        /// The binding is gone.
        QueueUnbindOk UnbindOk = 51 "queue.unbind-ok" [] {} [];
    }

    /// Class basic: messages.
    class basic = 60 {
        /// Limits the unacknowledged messages.
        BasicQos Qos = 10 "basic.qos" [] {
            prefetch_size: u32, prefetch_count: u16, global: bool
        } [];
        /// The limits hold.
        BasicQosOk QosOk = 11 "basic.qos-ok" [] {} [];
        /// Starts a consumer.
        BasicConsume Consume<'a> = 20 "basic.consume" [u16] {
            queue: &'a str, consumer_tag: &'a str, no_local: bool, no_ack: bool, exclusive: bool,
            no_wait: bool, arguments: TableRef<'a>
        } [];
        /// The consumer has started.
        BasicConsumeOk ConsumeOk<'a> = 21 "basic.consume-ok" [] { consumer_tag: &'a str } [];
        /// Ends a consumer.
        BasicCancel Cancel<'a> = 30 "basic.cancel" [] { consumer_tag: &'a str, no_wait: bool } [];
        /// The consumer has ended.
        BasicCancelOk CancelOk<'a> = 31 "basic.cancel-ok" [] { consumer_tag: &'a str } [];
        /// Publishes the message that follows.
        BasicPublish Publish<'a> = 40 "basic.publish" [u16] {
            exchange: &'a str, routing_key: &'a str, mandatory: bool, immediate: bool
        } [];
        /// Gives back a message that could not be routed.
        BasicReturn Return<'a> = 50 "basic.return" [] {
            reply_code: u16, reply_text: &'a str, exchange: &'a str, routing_key: &'a str
        } [];
        /// Hands a message to a consumer.
        BasicDeliver Deliver<'a> = 60 "basic.deliver" [] {
            consumer_tag: &'a str, delivery_tag: u64, redelivered: bool, exchange: &'a str,
            routing_key: &'a str
        } [];
        /// Asks for one message.
        BasicGet Get<'a> = 70 "basic.get" [u16] { queue: &'a str, no_ack: bool } [];
        /// Hands over the message asked for.
        BasicGetOk GetOk<'a> = 71 "basic.get-ok" [] {
            delivery_tag: u64, redelivered: bool, exchange: &'a str, routing_key: &'a str,
            message_count: u32
        } [];
        /// There is no message.
        BasicGetEmpty GetEmpty = 72 "basic.get-empty" [] {} [&str];
        /// Acknowledges one message, or all up to one.
        BasicAck Ack = 80 "basic.ack" [] { delivery_tag: u64, multiple: bool } [];
        /// Rejects one message.
        BasicReject Reject = 90 "basic.reject" [] { delivery_tag: u64, requeue: bool } [];
        /// Asks for redelivery, without an answer.
        BasicRecoverAsync RecoverAsync = 100 "basic.recover-async" [] { requeue: bool } [];
        /// Asks for redelivery.
        BasicRecover Recover = 110 "basic.recover" [] { requeue: bool } [];
        /// What was unacknowledged is back in its queues.
        BasicRecoverOk RecoverOk = 111 "basic.recover-ok" [] {} [];
        /// Rejects one message, or all up to one.
        BasicNack Nack = 120 "basic.nack" [] {
            delivery_tag: u64, multiple: bool, requeue: bool
        } [];
    }

    /// Class confirm: the broker acknowledges publishes.
    class confirm = 85 {
        /// Switches confirms on.
        ConfirmSelect Select = 10 "confirm.select" [] { no_wait: bool } [];
        /// Confirms are on.
        ConfirmSelectOk SelectOk = 11 "confirm.select-ok" [] {} [];
    }

    /// Class tx: publishes and acknowledgements that take effect together.
    class tx = 90 {
        /// Makes the channel transactional.
        TxSelect Select = 10 "tx.select" [] {} [];
        /// The channel is transactional.
        TxSelectOk SelectOk = 11 "tx.select-ok" [] {} [];
        /// Makes the work since the last commit take effect.
        TxCommit Commit = 20 "tx.commit" [] {} [];
        /// It has taken effect.
        TxCommitOk CommitOk = 21 "tx.commit-ok" [] {} [];
        /// Drops the work since the last commit.
        TxRollback Rollback = 30 "tx.rollback" [] {} [];
        /// It is dropped.
        TxRollbackOk RollbackOk = 31 "tx.rollback-ok" [] {} [];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use alloc::string::String;

    fn encoded(method: Method<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        method.encode_frame(0x0102, &mut out);
        out
    }

    #[test]
    fn every_method_decodes_to_its_name_and_encodes_to_what_it_was() {
        assert_eq!(METHODS.len(), 66);
        for &(class_id, method_id, name) in METHODS {
            let mut payload = Vec::new();
            payload.extend_from_slice(&class_id.to_be_bytes());
            payload.extend_from_slice(&method_id.to_be_bytes());
            payload.extend_from_slice(&[0; 40]);
            let method = Method::decode(&payload).unwrap();
            assert_eq!(method.name(), name);
            assert_eq!(method.ids(), (class_id, method_id));
            let bytes = encoded(method);
            let (frame, consumed) = frame::decode(&bytes, 4096).unwrap().unwrap();
            assert_eq!((consumed, frame.channel), (bytes.len(), 0x0102));
            assert_eq!(Method::decode(frame.payload), Ok(method));
            assert!(payload.starts_with(frame.payload));
            for end in 0..frame.payload.len() {
                let error = Method::decode(&frame.payload[..end]).unwrap_err();
                assert_eq!(error.code, ReplyCode::SYNTAX_ERROR, "{name} {end}");
                if end >= 4 {
                    assert_eq!((error.class_id, error.method_id), (class_id, method_id));
                }
            }
        }
    }

    #[test]
    fn golden_bytes_of_a_queue_declare() {
        let arguments = Table::new().with("x-max-length", 10i32).to_bytes();
        let method = Method::from(queue::Declare {
            queue: "q1",
            durable: true,
            auto_delete: true,
            arguments: arguments.as_ref(),
            ..queue::Declare::default()
        });
        let mut expected =
            Vec::from(*b"\x01\x01\x02\0\0\0\x20\0\x32\0\x0a\0\0\x02q1\x0a\0\0\0\x12");
        expected.extend_from_slice(b"\x0cx-max-lengthI\0\0\0\x0a\xce");
        assert_eq!(encoded(method), expected);
    }

    #[test]
    fn bits_share_octets_and_other_arguments_end_them() {
        let nack = basic::Nack { delivery_tag: 1, multiple: false, requeue: true };
        assert!(encoded(nack.into()).ends_with(b"\x01\x02\xce"));
        let deliver =
            basic::Deliver { redelivered: true, exchange: "e", ..basic::Deliver::default() };
        assert!(encoded(deliver.into()).ends_with(b"\x01\x01e\0\xce"));
    }

    #[test]
    fn ack_frames_are_recognised() {
        for multiple in [false, true] {
            let ack = basic::Ack { delivery_tag: u64::MAX - 1, multiple };
            let mut bytes = encoded(ack.into());
            assert_eq!(bytes.len(), ACK_FRAME_BYTES);
            assert_eq!(decode_ack_frame(&bytes[..20]), None);
            bytes.push(1);
            assert_eq!(decode_ack_frame(&bytes), Some((0x0102, ack)));
        }
        let nack = basic::Nack { delivery_tag: 1, multiple: true, requeue: true };
        assert_eq!(decode_ack_frame(&encoded(nack.into())), None);
    }

    #[test]
    fn unknown_methods_are_not_implemented() {
        for payload in [[0, 60, 0, 41], [0, 61, 0, 40]] {
            let error = Method::decode(&payload).unwrap_err();
            assert_eq!(error.code, ReplyCode::NOT_IMPLEMENTED);
            assert_eq!(error.class_id, u16::from(payload[1]));
            assert_eq!(error.method_id, u16::from(payload[3]));
        }
    }

    #[test]
    fn names_must_be_utf8() {
        let payload = b"\0\x32\0\x1e\0\0\x01\xff\0";
        let error = Method::decode(payload).unwrap_err();
        assert_eq!(error.code, ReplyCode::SYNTAX_ERROR);
        assert_eq!((error.class_id, error.method_id), (50, 30));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text: String = core::iter::repeat_n('ü', 200).collect();
        let bytes = encoded(Method::from(connection::Blocked { reason: &text }));
        let (frame, _) = frame::decode(&bytes, 4096).unwrap().unwrap();
        match Method::decode(frame.payload).unwrap() {
            Method::ConnectionBlocked(blocked) => assert_eq!(blocked.reason, &text[..254]),
            other => panic!("{other:?}"),
        }
    }
}
