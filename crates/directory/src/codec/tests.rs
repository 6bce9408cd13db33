use super::*;
use crate::exchange::ExchangeKind;
use crate::policy::{ApplyTo, Policy, PolicyScope};
use crate::router::Prepared;
use crate::user::HashingAlgorithm;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use lepus_amqp::table::{Table, Value};
use lepus_base::Rng;

const VHOST: VhostId = VhostId(7);

fn decode(bytes: &[u8], shards: u16) -> Result<Vec<Change>, DecodeError> {
    decode_each(bytes, shards).collect()
}

fn exchange_of(name: &str, kind: &str, arguments: Table) -> Change {
    let wanted = Wanted {
        name,
        kind,
        durable: true,
        auto_delete: true,
        internal: false,
        arguments: &arguments,
    };
    Change::ExchangeDeclared(Box::new(ExchangeInfo::parse(wanted, VHOST, "").unwrap()))
}

fn delayed_exchange() -> Change {
    let arguments = Table::new().with("x-delayed-type", "fanout");
    let Change::ExchangeDeclared(mut info) = exchange_of("x", "x-delayed-message", arguments)
    else {
        unreachable!("an exchange is declared")
    };
    info.holding = Some(QueueId(259));
    Change::ExchangeDeclared(info)
}

fn queue_of(id: u64, name: &str, log: u16, arguments: Table) -> Change {
    let kind = QueueKind::of(&arguments, QueueKind::Classic, name, "").unwrap();
    let settings = QueueSettings::parse(&arguments, kind, name, "").unwrap();
    Change::QueueDeclared(Arc::new(QueueInfo::new(Declared {
        id: QueueId(id),
        vhost: VHOST,
        name,
        home: ShardId(log),
        log,
        durable: true,
        auto_delete: false,
        exclusive: None,
        server_named: true,
        kind,
        arguments: &arguments,
        settings,
        user: "ann",
    })))
}

fn bound(destination: Destination, routing_key: &str, arguments: Table) -> Box<BindingChange> {
    Box::new(BindingChange {
        vhost: VHOST,
        source: "x".into(),
        destination,
        routing_key: routing_key.into(),
        arguments: arguments.to_bytes(),
        filter: Prepared::default(),
    })
}

fn policy() -> Arc<Policy> {
    let definition = Table::new().with("max-length", Value::I64(5)).to_bytes();
    Arc::new(Policy::new("p", "^a", ApplyTo::Queues, -1, definition).unwrap())
}

/// One change of each kind, and its bytes.
fn golden() -> Vec<(Change, &'static str)> {
    let metadata = VhostMetadata {
        description: "grün".into(),
        tags: vec!["a".into(), "".into()],
        default_queue_type: Some(QueueKind::Quorum),
        protected: true,
        tracing: false,
    };
    let limits = VhostLimits { connections_max: Some(5), queues_max: None };
    let password = PasswordHash::new(HashingAlgorithm::Md5, b"secret", [1, 2, 3, 4]);
    let user: Box<str> = "ann".into();
    vec![
        (Change::IdsUsed { vhosts: 3, queues: 1 << 40 }, GOLDEN[0]),
        (
            Change::VhostCreated { id: VHOST, name: "v".into(), metadata: metadata.clone() },
            GOLDEN[1],
        ),
        (Change::VhostDescribed { id: VHOST, metadata }, GOLDEN[2]),
        (Change::VhostLimited { id: VHOST, limits }, GOLDEN[3]),
        (Change::VhostDeleted { id: VHOST }, GOLDEN[4]),
        (
            Change::UserPut { name: user.clone(), password, tags: vec!["monitoring".into()] },
            GOLDEN[5],
        ),
        (Change::UserDeleted { name: user.clone() }, GOLDEN[6]),
        (
            Change::UserLimited {
                name: user.clone(),
                limits: UserLimits { connections_max: None, channels_max: Some(9) },
            },
            GOLDEN[7],
        ),
        (
            Change::PermissionSet {
                user: user.clone(),
                vhost: VHOST,
                configure: "^a".into(),
                write: "".into(),
                read: ".*".into(),
            },
            GOLDEN[8],
        ),
        (Change::PermissionCleared { user: user.clone(), vhost: VHOST }, GOLDEN[9]),
        (
            Change::TopicPermissionSet {
                user: user.clone(),
                vhost: VHOST,
                exchange: "x".into(),
                write: "^w".into(),
                read: "^r".into(),
            },
            GOLDEN[10],
        ),
        (
            Change::TopicPermissionCleared { user, vhost: VHOST, exchange: Some("x".into()) },
            GOLDEN[11],
        ),
        (exchange_of("x", "topic", Table::new().with("alternate-exchange", "y")), GOLDEN[12]),
        (Change::ExchangeDeleted { vhost: VHOST, name: "x".into() }, GOLDEN[13]),
        (queue_of(258, "q", 3, Table::new().with("x-max-length", 10i32)), GOLDEN[14]),
        (Change::QueueDeleted { id: QueueId(258) }, GOLDEN[15]),
        (
            Change::Bound(bound(
                Destination::Queue("q".into()),
                "k",
                Table::new().with("a", true).with("b", "c"),
            )),
            GOLDEN[16],
        ),
        (Change::Unbound(bound(Destination::Exchange("y".into()), "", Table::new())), GOLDEN[17]),
        (Change::QueueMoved { id: QueueId(258), new_id: QueueId(259), log: 3 }, GOLDEN[18]),
        (delayed_exchange(), GOLDEN[19]),
        (Change::InParts, GOLDEN[20]),
        (
            Change::PolicySet { vhost: VHOST, scope: PolicyScope::Operator, policy: policy() },
            GOLDEN[21],
        ),
        (
            Change::PolicyCleared { vhost: VHOST, scope: PolicyScope::User, name: "p".into() },
            GOLDEN[22],
        ),
        (
            Change::ParameterSet {
                vhost: VHOST,
                component: "c".into(),
                name: "n".into(),
                value: "{}".into(),
            },
            GOLDEN[23],
        ),
        (
            Change::ParameterCleared { vhost: VHOST, component: "c".into(), name: "n".into() },
            GOLDEN[24],
        ),
        (Change::GlobalParameterSet { name: "n".into(), value: "[1]".into() }, GOLDEN[25]),
        (Change::GlobalParameterCleared { name: "n".into() }, GOLDEN[26]),
    ]
}

const GOLDEN: [&str; 27] = [
    "01030000000000000000010000",
    "0207000000017603050000006772c3bc6e020000000100000061000000000671756f72756d",
    "030700000003050000006772c3bc6e020000000100000061000000000671756f72756d",
    "040700000001050000000000000000",
    "0507000000",
    "0603616e6e0214010203043824f5c8bc2df87a08a13d6340147e65010000000a0000006d6f6e69746f72696e67",
    "0703616e6e",
    "0803616e6e00010900000000000000",
    "0903616e6e07000000020000005e6100000000020000002e2a",
    "0a03616e6e07000000",
    "0b03616e6e070000000100000078020000005e77020000005e72",
    "0c03616e6e07000000010100000078",
    "0d07000000017805746f706963010000001912616c7465726e6174652d65786368616e6765530000000179",
    "0e070000000178",
    "0f0201000000000000070000000171030002000000120c782d6d61782d6c656e677468490000000a03616e6e",
    "100201000000000000",
    "11070000000178000171016b0000000c016174010162530000000163",
    "120700000001780101790000000000",
    "13020100000000000003010000000000000300",
    "14030100000000000007000000017811782d64656c617965642d6d657373616765010000001a0e782d64656c617965642d74797065530000000666616e6f7574",
    "15",
    "1607000000010170020000005e6106717565756573ffffffffffffffff000000140a6d61782d6c656e6774686c0000000000000005",
    "1707000000000170",
    "18070000000163016e020000007b7d",
    "19070000000163016e",
    "1a016e030000005b315d",
    "1b016e",
];

fn bytes_of(change: &Change) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(change, &mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_change_lies_in_the_log_as_the_format_says() {
    for (change, expected) in golden() {
        let bytes = bytes_of(&change);
        assert_eq!(hex(&bytes), expected, "{change:?}");
        assert_eq!(decode(&bytes, 8), Ok(vec![change]));
    }
}

#[test]
fn changes_follow_one_another() {
    let changes: Vec<Change> = golden().into_iter().map(|(change, _)| change).collect();
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| encode(change, &mut bytes));
    assert_eq!(decode(&bytes, 8), Ok(changes));
    assert_eq!(decode(&[], 1), Ok(vec![]));
}

#[test]
fn how_many_queues_changes_declare_is_told_about_right_without_reading_them() {
    let mut queues = Vec::new();
    for id in 0..100 {
        encode(&queue_of(id, &format!("queue-{id:05}"), 1, Table::new()), &mut queues);
    }
    assert_eq!(queues_about(&queues), 100);
    assert!(begins_with_queue(&queues));
    let mut others = Vec::new();
    encode(&delayed_exchange(), &mut others);
    others.extend_from_slice(&queues);
    assert_eq!((queues_about(&others), begins_with_queue(&others)), (0, false));
    // Never more than could be there.
    let mut short = Vec::new();
    encode(&queue_of(1, "q", 1, Table::new()), &mut short);
    let bytes = short.len();
    encode(&queue_of(2, &"long".repeat(50), 1, Table::new()), &mut short);
    assert_eq!(queues_about(&short), short.len() / bytes);
    for cut in 0..bytes {
        assert_eq!(queues_about(&short[..cut]), 0);
    }
}

#[test]
fn a_queue_lives_where_its_log_is_driven() {
    for (log, shards, home) in [(3, 8, 3), (3, 2, 1), (3, 1, 0), (5, 3, 2)] {
        let bytes = bytes_of(&queue_of(1, "q", log, Table::new()));
        let changes = decode(&bytes, shards).unwrap();
        let [Change::QueueDeclared(info)] = &changes[..] else { panic!("no queue") };
        assert_eq!((info.log, info.home), (log, ShardId(home)));
    }
}

#[test]
fn a_change_that_is_cut_is_refused_wherever_it_is_cut() {
    for (change, _) in golden() {
        let bytes = bytes_of(&change);
        for end in 1..bytes.len() {
            assert_eq!(decode(&bytes[..end], 1), Err(DecodeError::Short), "{change:?} at {end}");
        }
    }
}

#[test]
fn what_the_encoder_does_not_write_is_refused() {
    let changed = |change: &Change, at: usize, byte: u8| {
        let mut bytes = bytes_of(change);
        bytes[at] = byte;
        decode(&bytes, 1).unwrap_err()
    };
    let list = golden();
    let find = |tag: u8| &list[usize::from(tag) - 1].0;
    assert_eq!(decode(&[0], 1), Err(DecodeError::Tag(0)));
    assert_eq!(decode(&[28], 1), Err(DecodeError::Tag(28)));
    // Text that is none, unknown flags, an unknown algorithm. A hash of another length is kept: tools send such.
    assert_eq!(changed(find(USER_DELETED), 2, 0xff), DecodeError::Field("text"));
    assert_eq!(changed(find(VHOST_LIMITED), 5, 2), DecodeError::Field("flag"));
    assert_eq!(changed(find(UNBOUND), 7, 2), DecodeError::Field("flag"));
    assert_eq!(changed(find(USER_PUT), 5, 3), DecodeError::Field("password hash"));
    // Arguments out of order, of an unknown type, with a value that no queue takes.
    let swapped = Table(vec![("b".into(), Value::Void), ("a".into(), Value::Void)]);
    let change = Change::Bound(bound(Destination::Queue("q".into()), "", swapped));
    let error = decode(&bytes_of(&change), 1).unwrap_err();
    assert_eq!(error, DecodeError::Field("order of arguments"));
    let bytes = bytes_of(find(QUEUE_DECLARED));
    let at = bytes.iter().position(|&byte| byte == b'I').unwrap();
    assert_eq!(changed(find(QUEUE_DECLARED), at, b'?'), DecodeError::Field("table"));
    assert!(matches!(changed(find(QUEUE_DECLARED), at + 1, 0xff), DecodeError::Refused(_)));
    // A policy of nobody, or for an unknown kind of object.
    assert_eq!(changed(find(POLICY_SET), 5, 2), DecodeError::Field("flag"));
    let at = bytes_of(find(POLICY_SET)).windows(6).position(|window| window == b"queues").unwrap();
    assert_eq!(changed(find(POLICY_SET), at, b'Q'), DecodeError::Field("kind of object"));
    // An exchange of an unknown type.
    let bytes = bytes_of(find(EXCHANGE_DECLARED));
    let at = bytes.windows(5).position(|window| window == b"topic").unwrap();
    assert!(matches!(changed(find(EXCHANGE_DECLARED), at, b'T'), DecodeError::Refused(_)));
}

#[test]
fn a_policy_whose_pattern_is_not_taken_any_more_is_for_nothing() {
    let definition = Table::new().with("max-length", Value::I64(5)).to_bytes();
    let policy = Policy::recovered("p", "a++", ApplyTo::All, 0, definition);
    let policy = Arc::new(policy);
    let change = Change::PolicySet { vhost: VHOST, scope: PolicyScope::User, policy };
    let changes = decode(&bytes_of(&change), 1).unwrap();
    let [Change::PolicySet { policy, .. }] = &changes[..] else { panic!("a policy") };
    assert_eq!(policy.pattern(), "a++");
}

#[test]
fn limits_and_the_flag_of_tracing_are_kept_as_they_were_set() {
    let limits = VhostLimits { connections_max: Some(-1), queues_max: Some(i64::MIN) };
    let metadata = VhostMetadata { tracing: true, ..VhostMetadata::default() };
    let changes = vec![
        Change::VhostLimited { id: VHOST, limits },
        Change::VhostDescribed { id: VHOST, metadata },
        Change::UserLimited {
            name: "ann".into(),
            limits: UserLimits { connections_max: Some(-7), channels_max: Some(i64::MAX) },
        },
    ];
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| encode(change, &mut bytes));
    assert_eq!(decode(&bytes, 1), Ok(changes));
    assert_eq!((limits.connections(), limits.queues()), (None, None));
}

#[test]
fn lengths_that_lie_cost_nothing() {
    let mut bytes = vec![VHOST_DESCRIBED, 1, 0, 0, 0, 0];
    bytes.extend_from_slice(&0u32.to_le_bytes());
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode(&bytes, 1), Err(DecodeError::Short));
    let bytes = [EXCHANGE_DECLARED, 1, 0, 0, 0, 1, b'x', 6, b'd', b'i', b'r', b'e', b'c', b't', 0];
    let bytes = [&bytes[..], &u32::MAX.to_be_bytes()].concat();
    assert_eq!(decode(&bytes, 1), Err(DecodeError::Short));
}

fn random_text(rng: &mut Rng, length_max: u64) -> String {
    let letters = ['a', 'B', '0', '.', '#', '-', ' ', 'ß', '漢', '\u{1f430}'];
    let length = rng.below(length_max + 1);
    (0..length).map(|_| letters[rng.below(letters.len() as u64) as usize]).collect()
}

fn random_table(rng: &mut Rng, depth: u64) -> Table {
    let mut table = Table::new();
    for index in 0..rng.below(4) {
        let value = match rng.below(9) {
            0 => Value::Bool(rng.chance(1, 2)),
            1 => Value::I64(rng.next_u64() as i64),
            2 => Value::Timestamp(rng.next_u64()),
            3 => Value::F64(rng.below(1000) as f64 / 8.0),
            4 => Value::Binary(vec![rng.below(256) as u8; rng.below(5) as usize]),
            5 => Value::Void,
            6 if depth < 4 => Value::Table(random_table(rng, depth + 1)),
            7 => Value::from(vec![Value::U8(1), Value::from(random_text(rng, 3).as_str())]),
            _ => Value::from(random_text(rng, 40).as_str()),
        };
        table.insert(format!("{index}{}", random_text(rng, 6)), value);
    }
    table
}

fn random_change(rng: &mut Rng) -> Change {
    let name = |rng: &mut Rng| random_text(rng, 60);
    match rng.below(7) {
        0 => {
            let kinds: Vec<ExchangeKind> = ExchangeKind::all().collect();
            let kind = kinds[rng.below(kinds.len() as u64) as usize].name();
            exchange_of(&name(rng), kind, random_table(rng, 1))
        }
        1 => {
            let log = rng.below(u64::from(u16::MAX)) as u16;
            queue_of(rng.next_u64(), &name(rng), log, random_table(rng, 1))
        }
        2 => Change::UserPut {
            name: name(rng).into(),
            password: PasswordHash::new(HashingAlgorithm::Sha512, name(rng).as_bytes(), [9; 4]),
            tags: (0..rng.below(4)).map(|_| name(rng).into()).collect(),
        },
        3 => Change::PermissionSet {
            user: name(rng).into(),
            vhost: VhostId(rng.next_u64() as u32),
            configure: random_text(rng, 2000).into(),
            write: name(rng).into(),
            read: name(rng).into(),
        },
        4 => Change::VhostLimited {
            id: VHOST,
            limits: VhostLimits {
                connections_max: rng.chance(1, 2).then(|| rng.next_u64() as i64),
                queues_max: rng.chance(1, 2).then(|| rng.next_u64() as i64),
            },
        },
        _ => {
            let destination = match rng.chance(1, 2) {
                true => Destination::Queue(name(rng)),
                false => Destination::Exchange(name(rng)),
            };
            Change::Bound(bound(destination, &name(rng), random_table(rng, 1)))
        }
    }
}

#[test]
fn random_changes_are_read_as_they_were_written() {
    let mut rng = Rng::new(1);
    for _ in 0..3000 {
        let changes: Vec<Change> = (0..rng.below(4)).map(|_| random_change(&mut rng)).collect();
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| encode(change, &mut bytes));
        assert_eq!(decode(&bytes, u16::MAX), Ok(changes));
    }
}

#[test]
fn bytes_with_random_faults_are_refused_or_mean_something() {
    let mut rng = Rng::new(2);
    let list: Vec<Vec<u8>> = golden().iter().map(|(change, _)| bytes_of(change)).collect();
    let (mut refused, mut read) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = list[rng.below(list.len() as u64) as usize].clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = rng.below(256) as u8,
                1 => bytes[at] ^= 1 << rng.below(8),
                _ => bytes.truncate(at + 1),
            }
        }
        let Ok(changes) = decode(&bytes, 4) else {
            refused += 1;
            continue;
        };
        read += 1;
        let mut again = Vec::new();
        changes.iter().for_each(|change| encode(change, &mut again));
        let twice = decode(&again, 4).expect("what was read can be written and read");
        assert_eq!(twice.len(), changes.len());
    }
    assert!(refused > 1000 && read > 1000, "{refused} refused, {read} read");
}
