//! Exchanges that spread messages over their bindings by a hash.
//!
//! The hash is the same on every machine and after every start, so that a key keeps its queue.
//! A consistent-hash exchange gives each binding a share of the keys by the weight that its binding
//! key is.

use super::shares::Shares;
use super::{Message, choose};
use crate::binding::{Binding, Bindings, Destination, Link, Target};
use crate::hash_subject::HashSubject;

use crate::routing_keys::BCC;
use crate::routing_keys::RoutingKeys;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use lepus_amqp::table::{Table, TableRef, ValueRef};
use lepus_queue::refusal::{Refusal, RefusalKind};

/// The largest weight of a binding.
const WEIGHT_MAX: u32 = 65_535;

/// Bytes that a binding takes, whatever its weight.
pub(super) const BINDING_BYTES: usize = Shares::BINDING_BYTES;

/// The bindings of a consistent-hash exchange.
#[derive(Clone, Debug)]
pub(crate) struct ConsistentHash {
    subject: HashSubject,
    shares: Shares,
}

impl ConsistentHash {
    /// For an exchange with arguments that were checked with [`HashSubject::of`].
    pub(super) fn new(arguments: TableRef<'_>) -> ConsistentHash {
        let subject = HashSubject::of(&arguments.to_owned()).unwrap_or(HashSubject::RoutingKey);
        ConsistentHash { subject, shares: Shares::new() }
    }

    pub(super) fn looks_beyond_key(&self) -> bool {
        self.subject != HashSubject::RoutingKey
    }

    pub(super) fn insert(&mut self, bindings: &mut Bindings, place: u32, to: &Destination) {
        let binding = bindings.get_mut(place);
        let link = Link { target: binding.target, binding: place };
        let weight = weight(binding.routing_key.as_str()).unwrap_or(1);
        binding.node = self.shares.insert(number(binding, to), weight, link);
    }

    pub(super) fn remove(&mut self, bindings: &Bindings, place: u32) {
        self.shares.remove(bindings.get(place).node);
    }

    pub(super) fn select<'a>(
        &'a self,
        message: Message<'_>,
        is_living: &impl Fn(Target) -> bool,
    ) -> &'a [Link] {
        let properties = message.properties;
        let hash = match &self.subject {
            HashSubject::RoutingKey => hash(message.keys.first.as_bytes()),
            HashSubject::MessageId => hash(properties.message_id().unwrap_or_default()),
            HashSubject::CorrelationId => hash(properties.correlation_id().unwrap_or_default()),
            HashSubject::Timestamp => properties
                .timestamp()
                .map_or_else(|| hash(&[]), |seconds| hash(&seconds.to_be_bytes())),
            HashSubject::Header(name) => {
                let headers = properties.headers().unwrap_or_default();
                hash_value((**name != *BCC).then(|| headers.get(name)).flatten())
            }
        };
        self.shares.select(hash, is_living)
    }
}

/// The one link that the hash of all keys modulo their number names. A consistent-hash exchange looks
/// at the first key alone, this one at all of them, as in RabbitMQ.
pub(super) fn modulus<'a>(
    links: &'a [Link],
    keys: RoutingKeys<'_>,
    is_living: &impl Fn(Target) -> bool,
) -> &'a [Link] {
    let first = hash(keys.first.as_bytes());
    let further = keys.further.iter();
    let mut next = further.fold(first, |state, key| mix(fnv(state, key.as_bytes())));
    let number = || {
        let hash = next;
        next = mix(hash);
        hash
    };
    choose(links, number, is_living)
}

fn refuse(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::PreconditionFailed, text)
}

pub(super) fn check_weight(routing_key: &str) -> Result<(), Refusal> {
    weight(routing_key).map(|_| ())
}

fn weight(routing_key: &str) -> Result<u32, Refusal> {
    let number: i64 = routing_key
        .parse()
        .map_err(|_| refuse(format!("The binding key must be an integer: {routing_key}")))?;
    match u32::try_from(number) {
        Ok(number @ 1..=WEIGHT_MAX) => Ok(number),
        _ if number < 1 => Err(refuse("The binding key must be greater than 0")),
        _ => Err(refuse(format!(
            "The binding key must not be greater than {WEIGHT_MAX}: {routing_key}"
        ))),
    }
}

pub(super) fn check_empty_key(routing_key: &str) -> Result<(), Refusal> {
    if routing_key.is_empty() {
        return Ok(());
    }
    Err(refuse(format!(
        "The binding key must be empty for an exchange of this type, not '{routing_key}'"
    )))
}

/// FNV-1a with SplitMix64's finalizer: fixed for ever, since it decides which queue a key uses.
fn hash(bytes: &[u8]) -> u64 {
    mix(fnv(0xcbf2_9ce4_8422_2325, bytes))
}

fn fnv(state: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(state, |state, &byte| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// SplitMix64's finalizer; fixed for ever, too.
pub(super) fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The number of a binding by what makes it up, the same on every machine and after every start.
fn number(binding: &Binding, to: &Destination) -> u64 {
    let (kind, name) = match to {
        Destination::Queue(name) => (b"q", name),
        Destination::Exchange(name) => (b"x", name),
    };
    let mut state = hash(kind);
    let arguments = binding.arguments().bytes();
    for part in [name.as_bytes(), binding.routing_key.as_bytes(), arguments] {
        state = mix(fnv(state, part));
    }
    state
}

/// Integers of the same number hash alike, whatever their width.
fn hash_value(value: Option<ValueRef<'_>>) -> u64 {
    match value {
        None => hash(&[]),
        Some(ValueRef::LongString(bytes) | ValueRef::Binary(bytes)) => hash(bytes),
        Some(other) => match other.as_integer() {
            Some(number) => hash(&number.to_be_bytes()),
            None => {
                let mut bytes = Vec::new();
                Table::new().with("", other.to_owned()).encode(&mut bytes);
                hash(&bytes)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Target;
    use lepus_amqp::properties::{Properties, PropertiesRef};
    use lepus_amqp::table::{TableBytes, Value};
    use lepus_base::HashState;

    struct Fixture {
        bindings: Bindings,
        router: ConsistentHash,
    }

    impl Fixture {
        fn new(arguments: &Table) -> Fixture {
            Fixture {
                bindings: Bindings::new(HashState::new(3)),
                router: ConsistentHash::new(arguments.to_bytes().as_ref()),
            }
        }

        fn bind(&mut self, queue: u32, weight: &str) -> u32 {
            let target = Target::queue(queue);
            let place = self.bindings.insert(0, target, weight, &TableBytes::default());
            let to = Destination::Queue(format!("q{queue}"));
            self.router.insert(&mut self.bindings, place, &to);
            place
        }

        fn select(&self, key: &str, properties: &[u8]) -> u32 {
            let message = Message::of(key.into(), PropertiesRef(properties));
            match self.router.select(message, &|_| true) {
                [link] => link.target.split().unwrap(),
                other => panic!("one link, not {other:?}"),
            }
        }

        fn homes(&self) -> Vec<u32> {
            (0..100_000).map(|number| self.select(&format!("key.{number}"), &[])).collect()
        }
    }

    fn share(homes: &[u32], queue: u32) -> usize {
        homes.iter().filter(|&&home| home == queue).count()
    }

    #[test]
    fn shares_follow_the_weights() {
        let mut fixture = Fixture::new(&Table::new());
        fixture.bind(0, "1");
        fixture.bind(1, "1");
        fixture.bind(2, "2");
        let homes = fixture.homes();
        assert!((24_000..26_000).contains(&share(&homes, 0)));
        assert!((24_000..26_000).contains(&share(&homes, 1)));
        assert!((49_000..51_000).contains(&share(&homes, 2)));
    }

    #[test]
    fn few_keys_move_when_queues_come_and_go() {
        let mut fixture = Fixture::new(&Table::new());
        let places: Vec<u32> = (0..10).map(|queue| fixture.bind(queue, "10")).collect();
        let before = fixture.homes();
        fixture.bind(10, "10");
        let after = fixture.homes();
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!(moved < 18_000, "{moved} of 100000 moved to the new queue");
        fixture.router.remove(&fixture.bindings, places[3]);
        let less = fixture.homes();
        let moved = after.iter().zip(&less).filter(|(a, b)| a != b).count();
        assert!(moved < 22_000, "{moved} of 100000 moved after a removal");
        assert_eq!(share(&less, 3), 0);
    }

    #[test]
    fn the_hash_never_changes() {
        // A queue keeps its keys over restarts and versions: these figures are a promise.
        assert_eq!(hash(b""), 0xf52a_15e9_a9b5_e89b);
        let mut fixture = Fixture::new(&Table::new());
        for queue in 0..7 {
            fixture.bind(queue, "3");
        }
        let homes = ["0", "1", "2", "3", "4", "5", "6", "7"].map(|key| fixture.select(key, &[]));
        assert_eq!(homes, [6, 0, 0, 2, 4, 2, 1, 4]);
    }

    #[test]
    fn headers_and_properties_can_be_hashed() {
        let arguments = Table::new().with("hash-header", "h");
        let mut by_header = Fixture::new(&arguments);
        let arguments = Table::new().with("hash-property", "message_id");
        let mut by_id = Fixture::new(&arguments);
        for queue in 0..5 {
            by_header.bind(queue, "1");
            by_id.bind(queue, "1");
        }
        let mut seen = [[false; 5]; 2];
        for number in 0..100i32 {
            let header = |value: Value| {
                let headers = Some(Table::new().with("h", value));
                let properties = Properties { headers, ..Properties::default() };
                properties.to_bytes()
            };
            let wide = header(Value::I64(number.into()));
            let narrow = header(Value::I32(number));
            let home = by_header.select("same", &wide);
            assert_eq!(home, by_header.select("other", &narrow));
            seen[0][home as usize] = true;
            let properties =
                Properties { message_id: Some(format!("{number}")), ..Properties::default() };
            seen[1][by_id.select("same", &properties.to_bytes()) as usize] = true;
        }
        assert_eq!(seen, [[true; 5]; 2]);
        assert_eq!(by_id.select("a", &[]), by_id.select("b", &[]));
    }

    #[test]
    fn keys_and_arguments_that_make_no_sense_are_refused() {
        for key in ["", "x", "0", "-1", "65536", "1.5", "99999999999999999999"] {
            assert!(check_weight(key).is_err(), "{key}");
        }
        assert!(check_weight("1").is_ok() && check_weight("65535").is_ok());
        let both = Table::new().with("hash-header", "h").with("hash-property", "message_id");
        assert!(HashSubject::of(&both).is_err());
        assert!(HashSubject::of(&Table::new().with("hash-property", "app_id")).is_err());
        assert!(HashSubject::of(&Table::new().with("hash-header", 1i32)).is_err());
        assert!(HashSubject::of(&Table::new().with("hash-property", "timestamp")).is_ok());
    }

    #[test]
    fn without_bindings_nothing_is_selected() {
        let fixture = Fixture::new(&Table::new());
        let message = Message::of("".into(), PropertiesRef(&[]));
        assert!(fixture.router.select(message, &|_| true).is_empty());
        assert!(modulus(&[], "k".into(), &|_| true).is_empty());
    }

    #[test]
    fn of_several_keys_one_exchange_looks_at_the_first_and_the_other_at_all() {
        let mut fixture = Fixture::new(&Table::new());
        let target = |queue| Link { target: Target::queue(queue), binding: queue };
        let links: Vec<Link> = (0..8).map(target).collect();
        for queue in 0..8 {
            fixture.bind(queue, "1");
        }
        let (mut consistent, mut by_modulus) = (Vec::new(), Vec::new());
        for number in 0..100 {
            let further = [format!("copy{number}")];
            let keys = RoutingKeys { first: "k", further: &further };
            let message = Message::of(keys, PropertiesRef(&[]));
            consistent.push(fixture.router.select(message, &|_| true)[0].binding);
            let [link] = modulus(&links, keys, &|_| true) else { panic!("one link") };
            by_modulus.push(link.binding);
        }
        let number = |mut list: Vec<u32>| {
            list.sort_unstable();
            list.dedup();
            list.len()
        };
        assert_eq!((number(consistent), number(by_modulus)), (1, 8));
    }
}
