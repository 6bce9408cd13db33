//! Many filters, and messages of which each matches few of them.

use super::{
    CONFIRM_TIMEOUT, ID, INTERVAL, OUTPUT_FILE, PLACE, Shape, WARM_UP, confirms, count, id,
    plan_of, producer, schedule, sent_max, uris,
};
use crate::body::Layout;
use crate::consumer::ConsumerSpec;
use crate::filters::FiltersPlan;
use crate::filters::scheme::{Body, Place, Scheme};
use crate::filters::workload::{Dialect, LookAt, Wanted, Workload};
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options, wrong};
use crate::plan::{LinkPlan, Plan, RoleSpec, Stage};
use crate::producer::ProducerSpec;
use crate::report::Shown;
use crate::script::Step;
use std::time::Duration;

pub(super) const SHAPE: Shape = Shape {
    name: "filters",
    summary: "thousands of content filters at bindings or consumers: verdicts, speed, cost",
    lesson: "\
Sets --count filters at a broker and publishes trades of --symbols symbols through them. An anchored
filter asks for one symbol, a range of prices and a range of quantities,

  b.sym = 'S0017' AND b.price > 8120.25 AND b.price < 9601.58 AND b.qty < 870000

the others for the ranges alone, which is dearer for brokers that look equalities up. Ranges are drawn so
that about --matches filters match a message.

Before anything is measured, --check-messages messages are published and what comes is held against what
the tester itself says should come, for each queue and each message; a broker that decides otherwise ends
the run with exit code 1. Then the load is published with confirms, and the run tells rates, what the
broker's process (--pid) needed for a message, deliveries for each message, and how many filters a
second were set and taken away again. Everything that was made is deleted at the end.

--at binding binds queues to one exchange. --at consumer filters what consumers of queues get: each
message goes to one queue and there to one consumer, the last of which has no filter and a low priority.

A broker of lepus needs limits.exchange_filters_max of at least --count. Other brokers: Apache Qpid's take
--argument x-filter-jms-selector, which looks at headers; RabbitMQ compares headers for equality with
--headers-exchange. One that ignores the argument delivers everything, which the check tells.

  lepus perf filters --count 10000 --pid $(pidof lepus) -z 10
  lepus perf filters --count 10000 --anchored 0 --matches 3
  lepus perf filters --argument x-filter-jms-selector --type fanout -h amqp://localhost:5673
  lepus perf filters --count 1000 --headers-exchange -h amqp://localhost:5674
  lepus perf filters --count 1000 --ranges 0 --look-at headers      the same question, as filters
  lepus perf filters --at consumer --count 60 --queues 1",
    groups: &[PLACE, FILTERS, LOAD, OUTPUT],
    foreign: &[],
    plan,
};

const FILTERS: Group = Group {
    title: "Filters",
    choices: &[
        Choice::value("", "count", "N", "filters; default 10000"),
        Choice::value(
            "",
            "anchored",
            "SHARE",
            "share of them that ask for one symbol, 0 to 1; default 0.9",
        ),
        Choice::value(
            "",
            "symbols",
            "N",
            "symbols; default 1000, or as many as leave each enough filters for --matches",
        ),
        Choice::value(
            "",
            "ranges",
            "0|1|2",
            "ranges in each filter: 1 of the price, 2 of the quantity too; default 2. With 0 all filters are anchored",
        ),
        Choice::value("", "matches", "N", "about so many filters match a message; default 1"),
        Choice::value(
            "",
            "at",
            "binding|consumer|stream",
            "where the filters stand; default binding",
        ),
        Choice::value(
            "",
            "look-at",
            "body|headers",
            "what the filters look at; default body, headers with x-filter-jms-selector",
        ),
        Choice::value(
            "",
            "argument",
            "NAME",
            "x-filter (default) or x-filter-jms-selector: the argument that carries the filter",
        ),
        Choice::switch(
            "",
            "headers-exchange",
            "no filters but bindings of a headers exchange, which compare the symbol alone",
        ),
        Choice::value(
            "t",
            "type",
            "TYPE",
            "type of the exchange; default x-filter, fanout with x-filter-jms-selector",
        ),
        Choice::value(
            "",
            "queues",
            "N",
            "queues that the filters are spread over in turn; default 100, at consumers one for each 63 filters",
        ),
        Choice::switch("", "durable", "durable queues and bindings; default transient"),
        Choice::value(
            "",
            "check-messages",
            "N",
            "messages for the check of the verdicts; 0: none; default 500",
        ),
        Choice::value("", "seed", "N", "decides filters and messages; default 1"),
    ],
};

const LOAD: Group = Group {
    title: "Load",
    choices: &[
        Choice::value(
            "",
            "body",
            "json:BYTES|bytes:BYTES",
            "what a body is and how large; default json:250. bytes needs --look-at headers",
        ),
        Choice::value("x", "producers", "N", "producers, each with a connection; default 1"),
        Choice::value(
            "",
            "connections",
            "N",
            "connections of consumers; default 1, at consumers one for each 1000 filters",
        ),
        Choice {
            alias: "producer-rate",
            ..Choice::value("r", "rate", "MSG/S", "of each producer; default as fast as possible")
        },
        Choice::value(
            "c",
            "confirm",
            "N",
            "confirms, with at most N outstanding; default 1000, -1 for none",
        ),
        CONFIRM_TIMEOUT,
        Choice::value("C", "pmessages", "N", "stop after N messages of each producer"),
        Choice::value("", "pid", "PID", "the broker's process on this host"),
    ],
};

const OUTPUT: Group = Group {
    title: "Length and output",
    choices: &[
        Choice::value(
            "z",
            "time",
            "SECONDS",
            "time of the load; default 10, with -C until it is sent",
        ),
        WARM_UP,
        INTERVAL,
        ID,
        Choice::value(
            "",
            "output",
            "text|jsonl|csv",
            "what standard output carries: lines for people (default), or the same figures as JSON Lines for programs; \
             csv has those of the load alone",
        ),
        OUTPUT_FILE,
        Choice::value(
            "st",
            "shutdown-timeout",
            "SECONDS",
            "at the end, the longest wait for the broker to close; default 5",
        ),
        Choice::value(
            "",
            "drain",
            "SECONDS",
            "at the end, the longest wait for messages under way; default 5",
        ),
    ],
};

/// Filters on the consumers of one queue: lepus has 64 different ones there, one of which is that of the last consumer.
const QUEUE_FILTERS: u64 = 63;
/// Filters on the consumers of one connection.
const CONNECTION_FILTERS: u64 = 1_000;

/// What the options say about the filters, without drawing any.
fn scheme_of(options: &Options) -> Result<(Scheme, Wanted), OptionError> {
    let place = match options.text("at") {
        None | Some("binding") => Place::Binding,
        Some("consumer") => Place::Consumer,
        Some("stream") => return wrong("--at stream: streams are not served yet"),
        Some(other) => {
            return wrong(format!("--at knows binding, consumer and stream, not '{other}'"));
        }
    };
    let dialect = match (options.has("headers-exchange"), options.text("argument")) {
        (true, None) if place == Place::Binding => Dialect::HeadersExchange,
        (true, None) => {
            return wrong("--headers-exchange has bindings, so that --at consumer says nothing");
        }
        (true, Some(_)) => return wrong("--headers-exchange and --argument exclude each other"),
        (false, None | Some("x-filter")) => Dialect::Filter,
        (false, Some("x-filter-jms-selector")) => Dialect::JmsSelector,
        (false, Some(other)) => {
            return wrong(format!(
                "--argument knows x-filter and x-filter-jms-selector, not '{other}'"
            ));
        }
    };
    let by_headers = dialect != Dialect::Filter;
    let look_at = match options.text("look-at") {
        None if by_headers => LookAt::Headers,
        None | Some("body") if dialect != Dialect::HeadersExchange => LookAt::Body,
        Some("headers") => LookAt::Headers,
        Some("body") => return wrong("a headers exchange looks at headers, not at bodies"),
        Some(other) => return wrong(format!("--look-at knows body and headers, not '{other}'")),
        None => LookAt::Body,
    };
    let (body, body_bytes) = body(options)?;
    if body == Body::Bytes && look_at == LookAt::Body {
        return wrong("--body bytes has no fields; use json, or --look-at headers");
    }
    let kind = match (options.text("type"), dialect) {
        (Some(_), _) if place == Place::Consumer => {
            return wrong("--type is of the exchange, and --at consumer has none");
        }
        (Some("headers"), Dialect::HeadersExchange) | (None, Dialect::HeadersExchange) => "headers",
        (Some(_), Dialect::HeadersExchange) => {
            return wrong("--headers-exchange has the type headers");
        }
        (Some(kind), _) => kind,
        (None, Dialect::Filter) => "x-filter",
        (None, Dialect::JmsSelector) => "fanout",
    };
    let wanted = wanted(options, dialect)?;
    let filters = u64::from(wanted.count);
    let queues = match place {
        Place::Binding => count(options, "queues", filters.min(100), 1..=100_000)?,
        Place::Consumer => count(options, "queues", filters.div_ceil(QUEUE_FILTERS), 1..=100_000)?,
    };
    let scheme = Scheme {
        id: id(options),
        place,
        workload: Workload { filters: Vec::new(), trades: Vec::new(), matching: Vec::new() },
        dialect,
        look_at,
        kind: kind.to_owned(),
        queues: queues as u32,
        durable: options.has("durable"),
        body,
        body_bytes,
    };
    Ok((scheme, wanted))
}

fn wanted(options: &Options, dialect: Dialect) -> Result<Wanted, OptionError> {
    let filters = count(options, "count", 10_000, 1..=1_000_000)?;
    let is_headers = dialect == Dialect::HeadersExchange;
    let ranges = match (is_headers, options.has("ranges")) {
        (true, true) => return wrong("--headers-exchange compares for equality, it has no ranges"),
        (true, false) => 0,
        (false, _) => count(options, "ranges", 2, 0..=2)? as u8,
    };
    let anchored = options.rate("anchored")?;
    let anchored = match anchored {
        Some(share) if share > 1.0 => return wrong("--anchored needs a share from 0 to 1"),
        Some(share) if ranges == 0 && share < 1.0 => {
            return wrong(
                "filters without ranges and without a symbol ask for nothing; use --anchored 1",
            );
        }
        None if ranges == 0 => 1.0,
        anchored => anchored.unwrap_or(0.9),
    };
    let matches = options.rate("matches")?.unwrap_or(1.0);
    let seed = options.number("seed")?.unwrap_or(1);
    let wanted = Wanted::new(filters as u32, anchored, ranges, matches, seed);
    let symbols = count(options, "symbols", wanted.symbols.into(), 1..=1_000_000)? as u32;
    Ok(Wanted { symbols, ..wanted })
}

fn body(options: &Options) -> Result<(Body, usize), OptionError> {
    let text = options.text("body").unwrap_or("json:250");
    let (kind, bytes) = text.split_once(':').unwrap_or((text, "250"));
    let body = match kind {
        "json" => Body::Json,
        "bytes" => Body::Bytes,
        other => return wrong(format!("--body knows json:BYTES and bytes:BYTES, not '{other}'")),
    };
    match bytes.parse() {
        Ok(bytes) if bytes <= super::BODY_BYTES_MAX as usize => Ok((body, bytes)),
        _ => wrong(format!("--body needs a size in bytes, not '{bytes}'")),
    }
}

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    let (mut scheme, mut wanted) = scheme_of(options)?;
    if scheme.place == Place::Consumer {
        wanted.messages = wanted.messages.max(scheme.queues);
    }
    scheme.workload = Workload::draw(&wanted);
    if scheme.body == Body::Json {
        let bytes = scheme.body_bytes;
        let trades = (0..).zip(&scheme.workload.trades);
        let least = |number: u32, trade: &crate::filters::workload::Trade| {
            (0..).find(|more| trade.json(number, bytes + more).is_some()).unwrap_or_default()
        };
        let most = trades.map(|(number, trade)| least(number, trade)).max().unwrap_or_default();
        if most > 0 {
            return wrong(format!(
                "--body json needs at least {} bytes for its fields",
                bytes + most
            ));
        }
    }
    let filters = u64::from(wanted.count);
    let connections = match scheme.place {
        Place::Binding => 1,
        Place::Consumer => filters.div_ceil(CONNECTION_FILTERS),
    };
    let connections = count(options, "connections", connections, 1..=10_000)? as u32;
    let load = load(options, &scheme, connections)?;
    let plan = FiltersPlan {
        id: load.id.clone(),
        uris: uris(options)?,
        anchored: wanted.anchored,
        symbols: wanted.symbols,
        connections,
        sample: count(options, "check-messages", 500, 0..=wanted.messages.into())? as u32,
        pid: options.number("pid")?,
        format: load.run.format,
        scheme,
    };
    Ok(vec![Job::Filters(Box::new(plan), Box::new(load))])
}

/// The run that measures speed.
fn load(options: &Options, scheme: &Scheme, connections: u32) -> Result<Plan, OptionError> {
    let id = scheme.id.clone();
    let mut links: Vec<LinkPlan> = (0..connections)
        .map(|connection| {
            let mine = (connection..scheme.consumers()).step_by(connections as usize);
            let steps = mine.map(|consumer| scheme.consume(1, consumer));
            LinkPlan {
                stage: Stage::Consume,
                delay: Duration::ZERO,
                name: format!("{id} consumer {connection}"),
                script: std::iter::once(Step::open(1)).chain(steps).collect(),
                roles: vec![RoleSpec::Consumer(ConsumerSpec {
                    channel: 1,
                    ..ConsumerSpec::default()
                })],
            }
        })
        .collect();
    let confirms = confirms(options, Some(1_000))?;
    let sent_max = sent_max(options)?;
    let messages = 0..scheme.workload.trades.len() as u32;
    let producers = count(options, "producers", 1, 1..=1_000)? as u32;
    for number in 0..producers {
        let spec = ProducerSpec {
            number,
            messages: messages.clone().map(|message| scheme.message(message)).collect(),
            sent_max,
            schedule: schedule(options)?,
            confirms,
            ..ProducerSpec::default()
        };
        links.push(producer(&id, spec));
    }
    let deliveries: Vec<u64> = messages.map(|message| scheme.deliveries(message)).collect();
    let layout = Layout::new(scheme.body_bytes, false);
    let mut plan = Plan {
        time_in_header: true,
        copies: Some(vec![deliveries; producers as usize]),
        pid: options.number("pid")?,
        shown: Shown {
            sent: true,
            received: true,
            confirmed: confirms.is_some(),
            ..Shown::default()
        },
        ..plan_of(options, SHAPE.name, id, links, layout)?
    };
    if plan.run.time_max.is_none() && sent_max.is_none() {
        plan.run.time_max = Some(Duration::from_secs(10));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(line: &str) -> Result<(FiltersPlan, Plan), OptionError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let jobs = plan(&Options::parse(SHAPE.groups, SHAPE.foreign, &words)?)?;
        match jobs.into_iter().next() {
            Some(Job::Filters(plan, load)) => Ok((*plan, *load)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_options_ten_thousand_filters_look_at_bodies() {
        let (plan, load) = planned("-d me").unwrap();
        let scheme = &plan.scheme;
        assert_eq!((scheme.count(), scheme.queues, scheme.body_bytes), (10_000, 100, 250));
        assert_eq!(plan.symbols, 1_000);
        assert_eq!((scheme.kind.as_str(), scheme.look_at), ("x-filter", LookAt::Body));
        assert_eq!((scheme.queue(7).as_str(), load.id.as_str()), ("lepus-filters-me-7", "me"));
        assert_eq!(load.run.time_max, Some(Duration::from_secs(10)));
        let copies = load.copies.as_ref().unwrap();
        assert_eq!((copies.len(), copies[0].len()), (1, 2_048));
        assert_eq!(planned("-C 5").unwrap().1.run.time_max, None);
    }

    #[test]
    fn few_filters_have_few_symbols_so_that_as_many_match_as_were_asked_for() {
        let (plan, _) = planned("--count 100").unwrap();
        assert_eq!(plan.symbols, 23);
        let mean = plan.scheme.workload.matches_mean();
        assert!((0.8..1.2).contains(&mean), "{mean}");
    }

    #[test]
    fn filters_of_one_symbol_are_of_many_queues() {
        let (plan, load) = planned("--count 1000 --matches 5").unwrap();
        let copies = &load.copies.unwrap()[0];
        let deliveries = copies.iter().sum::<u64>() as f64 / copies.len() as f64;
        // Of 100 queues five chosen by chance are nearly always five different ones.
        assert!(deliveries > 0.9 * plan.scheme.workload.matches_mean(), "{deliveries}");
    }

    #[test]
    fn peers_are_asked_by_headers() {
        let (plan, _) = planned("--count 50 --argument x-filter-jms-selector").unwrap();
        assert_eq!((plan.scheme.kind.as_str(), plan.scheme.look_at), ("fanout", LookAt::Headers));
        let (plan, _) = planned("--count 50 --headers-exchange --matches 2").unwrap();
        assert_eq!((plan.scheme.kind.as_str(), plan.scheme.look_at), ("headers", LookAt::Headers));
        assert_eq!((plan.symbols, plan.anchored), (25, 1.0));
        assert!(plan.scheme.workload.filters.iter().all(|filter| filter.price.is_none()));
    }

    #[test]
    fn filters_on_consumers_are_spread_over_queues_and_connections() {
        let (plan, load) = planned("--at consumer --count 2500").unwrap();
        assert_eq!((plan.scheme.queues, plan.connections), (40, 3));
        assert_eq!(plan.scheme.consumers(), 2_540);
        let steps = load.links.iter().filter(|link| link.stage == Stage::Consume);
        assert_eq!(steps.map(|link| link.script.len() - 1).sum::<usize>(), 2_540);
        assert!(load.copies.unwrap()[0].iter().all(|copies| *copies == 1));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_reason() {
        for (line, reason) in [
            ("--at stream", "streams are not served yet"),
            ("--at nowhere", "'nowhere'"),
            ("--argument x-selector", "'x-selector'"),
            ("--headers-exchange --argument x-filter", "exclude each other"),
            ("--headers-exchange --ranges 1", "no ranges"),
            ("--headers-exchange --look-at body", "not at bodies"),
            ("--headers-exchange --at consumer", "bindings"),
            ("--headers-exchange --type topic", "has the type headers"),
            ("--at consumer --type topic", "has none"),
            ("--look-at keys", "'keys'"),
            ("--anchored 1.5", "0 to 1"),
            ("--anchored 0.5 --ranges 0", "--anchored 1"),
            ("--ranges 3", "from 0 to 2"),
            ("--body json:20", "at least 1"),
            ("--body bytes:20", "no fields"),
            ("--body text:20", "'text'"),
            ("--body json:many", "'many'"),
            ("--count 0", "from 1"),
            ("--check-messages 5000", "from 0 to 2048"),
            ("--confirm 0", "at least 1"),
        ] {
            let error = planned(&format!("{line} --queues 1")).unwrap_err();
            assert!(error.0.contains(reason), "{line}: {error}");
        }
    }
}
