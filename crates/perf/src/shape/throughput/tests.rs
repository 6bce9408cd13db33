//! Command lines become plans.

use super::*;
use lepus_amqp::Method;
use lepus_amqp::frame;

fn read(line: &str) -> Result<Plan, OptionError> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut plans = plan(&Options::parse(SHAPE.groups, SHAPE.foreign, &words)?)?;
    match plans.remove(0) {
        Job::Run(plan) => Ok(*plan),
        other => panic!("{other:?}"),
    }
}

fn stage(plan: &Plan, stage: Stage) -> Vec<&LinkPlan> {
    plan.links.iter().filter(|link| link.stage == stage).collect()
}

/// The methods of a script in words.
fn words(script: &[Step]) -> Vec<String> {
    script
        .iter()
        .map(|step| {
            let (frame, _) = frame::decode(&step.frame, u32::MAX).unwrap().unwrap();
            match Method::decode(frame.payload).unwrap() {
                Method::ExchangeDeclare(m) => format!("exchange {} {}", m.exchange, m.r#type),
                Method::QueueDeclare(m) => format!(
                    "queue {}{}{}",
                    m.queue,
                    if m.durable { " durable" } else { "" },
                    if m.auto_delete { " auto" } else { "" }
                ),
                Method::QueueBind(m) => {
                    format!("bind {} {} {}", m.queue, m.exchange, m.routing_key)
                }
                Method::BasicConsume(m) => {
                    format!("consume {}{}", m.queue, if m.no_ack { " auto" } else { "" })
                }
                Method::BasicQos(m) => format!("qos {} {}", m.prefetch_count, m.global),
                method => method.name().to_owned(),
            }
        })
        .collect()
}

fn producers(plan: &Plan) -> Vec<&ProducerSpec> {
    let roles = plan.links.iter().flat_map(|link| &link.roles);
    roles
        .filter_map(|role| match role {
            RoleSpec::Producer(producer) => Some(producer),
            _ => None,
        })
        .collect()
}

fn consumers(plan: &Plan) -> Vec<&ConsumerSpec> {
    let roles = plan.links.iter().flat_map(|link| &link.roles);
    roles
        .filter_map(|role| match role {
            RoleSpec::Consumer(consumer) => Some(consumer),
            _ => None,
        })
        .collect()
}

#[test]
fn without_options_one_producer_feeds_one_consumer_s_own_queue() {
    let plan = read("").unwrap();
    let setup = words(&stage(&plan, Stage::Setup)[0].script);
    assert_eq!(setup, ["channel.open", "exchange direct direct"]);
    let key = &producers(&plan)[0].messages[0].routing_key;
    let consumer = words(&stage(&plan, Stage::Consume)[0].script);
    assert_eq!(
        consumer,
        [
            "channel.open".into(),
            "queue  auto".into(),
            format!("bind  direct {key}"),
            "consume ".into()
        ]
    );
    assert_eq!(words(&stage(&plan, Stage::Produce)[0].script), ["channel.open"]);
    assert_eq!(plan.layout.size, 12);
    assert_eq!(producers(&plan)[0].messages[0].properties, [0, 0]);
    assert!(plan.run.time_max.is_none());
}

#[test]
fn the_single_queue_run_of_the_field_report_is_understood() {
    let plan = read("-x 1 -y 1 -u q -f mandatory -q 300 -c 100 -z 60").unwrap();
    let consumer = words(&stage(&plan, Stage::Consume)[0].script);
    assert_eq!(consumer[1], "queue q auto");
    assert_eq!(consumer[3..], ["qos 300 false", "consume q"]);
    let producer = &producers(&plan)[0];
    assert_eq!(producer.confirms, Some(100));
    assert!(producer.messages[0].mandatory);
    assert_eq!(consumers(&plan)[0].settling, Settling::Each);
    assert!(plan.shown.returned && plan.shown.confirmed);
    assert_eq!(plan.run.time_max, Some(Duration::from_secs(60)));
}

#[test]
fn queues_of_a_pattern_are_taken_in_turn() {
    let line = "-x 150 -y 300 --queue-pattern perf-test-%d --queue-pattern-from 1 --queue-pattern-to 100 --check";
    let plan = read(line).unwrap();
    let setup = words(&stage(&plan, Stage::Setup)[0].script);
    assert_eq!(setup.len(), 2 + 200);
    assert_eq!(setup[2..4], ["queue perf-test-1 auto", "bind perf-test-1 direct perf-test-1"]);
    let consumers = stage(&plan, Stage::Consume);
    assert_eq!(consumers.len(), 300);
    assert_eq!(words(&consumers[0].script), ["channel.open", "consume perf-test-1"]);
    assert_eq!(words(&consumers[299].script)[1], "consume perf-test-100");
    let producers = producers(&plan);
    assert_eq!(producers.len(), 150);
    assert_eq!(producers[149].messages[0].routing_key, "perf-test-50");
    assert_eq!(plan.expected.len(), 150);
    assert!(plan.expected.contains(&(49, 149)) && plan.expected.contains(&(99, 99)));
}

#[test]
fn named_queues_are_each_consumed_by_all() {
    let plan = read("-y 2 -Y 2 -X 3 -u a,b -k key --check").unwrap();
    let consumer = words(&stage(&plan, Stage::Consume)[1].script);
    assert_eq!(
        consumer[..5],
        ["channel.open", "queue a auto", "bind a direct key", "queue b auto", "bind b direct key"]
    );
    assert_eq!(consumer[5..7], ["consume a", "consume b"]);
    assert_eq!(consumers(&plan).len(), 4);
    assert_eq!(consumers(&plan)[0].lanes.len(), 2);
    assert_eq!(producers(&plan).len(), 3);
    assert_eq!(plan.expected.len(), 6);
    assert_eq!(plan.layout.size, 16);
}

#[test]
fn queues_that_nobody_consumes_are_made_beforehand() {
    let plan = read("-y 0 -u backlog -ad false -f persistent -C 1000").unwrap();
    let setup = words(&stage(&plan, Stage::Setup)[0].script);
    assert_eq!(setup[2], "queue backlog durable");
    assert_eq!(producers(&plan)[0].sent_max, Some(1_000));
    assert_eq!(producers(&plan)[0].messages[0].properties, [0x10, 0, 2]);
    assert!(!plan.shown.received);
}

#[test]
fn the_default_exchange_needs_no_bindings() {
    for line in ["-e -u q -k q --check", "-e amq.default -u q -k q --check"] {
        let plan = read(line).unwrap();
        assert_eq!(words(&stage(&plan, Stage::Setup)[0].script), ["channel.open"]);
        let consumer = words(&stage(&plan, Stage::Consume)[0].script);
        assert_eq!(consumer, ["channel.open", "queue q auto", "consume q"]);
        assert_eq!(plan.expected, [(0, 0)]);
    }
    assert!(read("-e -u q -k other --check").unwrap().expected.is_empty());
}

#[test]
fn a_fanout_exchange_reaches_every_queue() {
    let plan = read("-t fanout -y 3 -x 2 --check").unwrap();
    assert_eq!(plan.expected.len(), 6);
    assert_eq!(words(&stage(&plan, Stage::Setup)[0].script)[1], "exchange fanout fanout");
    assert!(read("-t x-random --check").unwrap().expected.is_empty());
}

#[test]
fn rates_are_spread_over_the_producers() {
    let plan = read("-x 4 --producer-rate 10").unwrap();
    let delays: Vec<u128> =
        producers(&plan).iter().map(|producer| producer.start_delay.as_millis()).collect();
    assert_eq!(delays, [0, 25, 50, 75]);
    assert_eq!(read("-P 5").unwrap().links.len(), 3);
    assert!(producers(&read("-vr 100:10 0:5").unwrap())[0].schedule.is_some());
    assert!(read("-r 5 -P 5").is_err());
}

#[test]
fn contradictions_are_refused_in_words() {
    for (line, word) in [
        ("--check -K", "--random-routing-key"),
        ("--check -s 7", "at least 8"),
        ("-c 0", "--confirm"),
        ("-c 5 -m 5", "transactions"),
        ("-a -na", "--nack"),
        ("-A 100 -q 50", "prefetch"),
        ("-f sticky", "sticky"),
        ("--queue-pattern q%d", "--queue-pattern-to"),
        ("-qp q%d -qpf 1 -qpt 2 -u q", "--queue"),
        ("-u a,a", "twice"),
        ("-x 1000000", "--producers"),
        ("-X 0", "--producer-channel-count"),
        ("-B /no/such/file", "/no/such/file"),
        ("-M 5", "4096"),
        ("-ew full", "full"),
        ("-i 0", "--interval"),
        ("-sq", "0-9-1"),
        ("-vs 5:1", "12 bytes"),
        ("-vs 100:1 -s 50", "--size"),
        ("-vs 100:1 --check", "--variable-size"),
        ("-jb -B x", "--json-body"),
        ("-bc 5", "--json-body"),
        ("-L 5 -vl 5:1", "--variable-latency"),
        ("-vl x:1", "VALUE:SECONDS"),
        ("--output xml", "jsonl"),
        ("--latency-from x", "plan and send"),
        ("-cri 5", "ends the run"),
        ("-h amqps://x", "TLS"),
        ("-z -5", "0 or more"),
    ] {
        let error = read(line).expect_err(line);
        assert!(error.0.contains(word), "{line}: {error}");
    }
}

#[test]
fn every_short_and_long_name_is_unique() {
    let mut names = std::collections::HashSet::new();
    for choice in SHAPE.groups.iter().flat_map(|group| group.choices) {
        for name in [choice.short, choice.long, choice.alias] {
            assert!(name.is_empty() || names.insert(name), "{name}");
        }
    }
    for foreign in SHAPE.foreign {
        for name in [foreign.short, foreign.long] {
            assert!(name.is_empty() || names.insert(name), "{name}");
        }
    }
}

#[test]
fn random_keys_have_room_in_the_template() {
    let plan = read("-rkcs 10").unwrap();
    let producer = producers(&plan)[0];
    assert!(producer.random_key);
    assert_eq!(producer.random_keys_max, 10);
    assert_eq!(producer.messages[0].routing_key.len(), crate::template::KEY_BYTES);
}

/// Short and long names of all options of the reference tester, version 2.22.1, but help and version.
const REFERENCE: &str = "
    a,autoack A,multi-ack-every ad,auto-delete b,heartbeat
    B,body bc,body-count bfc,body-field-count c,confirm
    C,pmessages ca,consumer-args cri,connection-recovery-interval csd,consumer-start-delay
    ct,confirm-timeout ctp,consumers-thread-pools d,id D,cmessages
    dcr,disable-connection-recovery e,exchange E,exclusive ei,expected-instances
    em,exposed-metrics env,environment-variables ew,exit-when f,flag
    h,uri H,uris hst,heartbeat-sender-threads i,interval
    isn,instance-sync-namespace ist,instance-sync-timeout jb,json-body k,routing-key
    K,random-routing-key L,consumer-latency ll,leader-locator m,ptxsize
    M,framemax ma,max-age mf,metrics-format mh,metrics-help
    mlb,max-length-bytes mp,message-properties ms,use-millis n,ctxsize
    na,nack niot,nio-threads niotp,nio-thread-pool o,output-file
    o2gr,oauth2-grant-type o2id,oauth2-client-id o2p,oauth2-parameters o2sec,oauth2-client-secret
    o2uri,oauth2-token-endpoint p,predeclared P,publishing-interval pi,polling-interval
    po,polling prsd,producer-random-start-delay pst,producer-scheduler-threads q,qos
    Q,global-qos qa,queue-args qf,queue-file qp,queue-pattern
    qpf,queue-pattern-from qpt,queue-pattern-to qq,quorum-queue r,rate
    R,consumer-rate re,requeue rkcs,routing-key-cache-size S,slow-start
    s,size sb,skip-binding-queues sco,stream-consumer-offset se,sasl-external
    smssb,stream-max-segment-size-bytes sni,server-name-indication sq,stream-queue sst,servers-startup-timeout
    st,shutdown-timeout sul,servers-up-limit t,type T,body-content-type
    tnd,tcp-no-delay trbs,tcp-receive-buffer-size tsbs,tcp-send-buffer-size u,queue
    udsc,use-default-ssl-context vl,variable-latency vr,variable-rate vs,variable-size
    x,producers X,producer-channel-count y,consumers Y,consumer-channel-count
    z,time verbose verbose-full
";

#[test]
fn every_option_of_the_reference_is_known_under_its_names() {
    let ours = SHAPE.groups.iter().flat_map(|group| group.choices);
    let mut known: Vec<(&str, &str)> = ours.map(|choice| (choice.short, choice.long)).collect();
    known.extend(SHAPE.foreign.iter().map(|foreign| (foreign.short, foreign.long)));
    for option in REFERENCE.split_whitespace() {
        let names = option.split_once(',').unwrap_or(("", option));
        assert!(known.contains(&names), "{option}");
    }
}
