use super::rows::{ConnectionLine, ExchangeLine};
use super::*;
use lepus_base::{ConnectionId, HashState};
use lepus_broker::directory::Directory;
use lepus_broker::query::ChannelRow;
use lepus_broker::{ExchangeCounts, MessageCounts, Octets};

fn mirror() -> Mirror {
    Mirror::start(Directory::new(HashState::new(1), 1)).unwrap()
}

fn channel(connection: ConnectionId, number: u16) -> ChannelRow {
    ChannelRow {
        connection,
        number,
        consumers: 2,
        prefetch: 10,
        global_prefetch: 0,
        unacked: 3,
        unconfirmed: 0,
        uncommitted: 0,
        acks_uncommitted: 0,
        confirms: false,
        transactional: false,
        counts: MessageCounts { published: 8, acknowledged: 2, ..MessageCounts::default() },
    }
}

fn rows() -> Rows {
    let id = ConnectionId::default();
    Rows {
        connections: vec![ConnectionLine {
            id,
            name: "[::1]:1 -> [::1]:5672".into(),
            channels: 1,
            octets: Octets { received: 70, reads: 2, sent: 40, writes: 1 },
        }],
        channels: vec![channel(id, 7)],
        exchanges: vec![ExchangeLine {
            vhost: "/".into(),
            name: "a \"b\"\\c\nd".into(),
            kind: "topic",
            bindings: 4,
        }],
        published: vec![(
            "/".into(),
            "x".into(),
            ExchangeCounts { published: 5, routed: 9, returned: 2, dropped: 1 },
        )],
        vhosts: vec!["/".into(), "two".into()],
        ..Rows::default()
    }
}

/// The page without what every page begins with.
fn told(query: &str, rows: &Rows) -> String {
    let mut page = String::new();
    let give = |part: String| {
        page.push_str(&part);
        true
    };
    write(&Wish::read(query).unwrap(), rows, &mirror(), give);
    let own = page.find("# HELP lepus_build_info").unwrap();
    page[own..].split_inclusive('\n').skip(3).collect()
}

#[test]
fn names_are_escaped_and_exchanges_are_told_by_their_bindings() {
    assert_eq!(
        told("family=exchange_bindings&family=exchange_names", &rows()),
        "# HELP rabbitmq_cluster_exchange_bindings Bindings of an exchange as a source.\n\
         # TYPE rabbitmq_cluster_exchange_bindings gauge\n\
         rabbitmq_cluster_exchange_bindings{vhost=\"/\",exchange=\"a \\\"b\\\"\\\\c\\nd\",type=\"topic\"} 4\n\
         # HELP rabbitmq_cluster_exchange_name The exchanges that there are.\n\
         # TYPE rabbitmq_cluster_exchange_name gauge\n\
         rabbitmq_cluster_exchange_name{vhost=\"/\",exchange=\"a \\\"b\\\"\\\\c\\nd\"} 1\n"
    );
}

#[test]
fn channels_and_virtual_hosts_are_told_under_their_names() {
    let page = told(
        "family=vhost_status&family=channel_metrics&family=connection_metrics&family=connection_coarse_metrics",
        &rows(),
    );
    for line in [
        "rabbitmq_cluster_vhost_status{vhost=\"two\"} 1",
        "rabbitmq_detailed_channel_consumers{channel=\"[::1]:1 -> [::1]:5672 (7)\"} 2",
        "rabbitmq_detailed_channel_messages_unacked{channel=\"[::1]:1 -> [::1]:5672 (7)\"} 3",
        "rabbitmq_detailed_consumer_prefetch{channel=\"[::1]:1 -> [::1]:5672 (7)\"} 10",
        "rabbitmq_detailed_connection_incoming_bytes_total{channel=\"[::1]:1 -> [::1]:5672\"} 70",
        "rabbitmq_detailed_connection_outgoing_bytes_total{channel=\"[::1]:1 -> [::1]:5672\"} 40",
        "rabbitmq_detailed_connection_incoming_packets_total{channel=\"[::1]:1 -> [::1]:5672\"} 2",
        "rabbitmq_detailed_connection_channels{channel=\"[::1]:1 -> [::1]:5672\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
    assert!(!page.contains("queue"), "{page}");
}

#[test]
fn what_channels_and_exchanges_counted_is_told() {
    let page = told(
        "family=channel_exchange_metrics&family=channel_queue_metrics&family=exchange_metrics",
        &rows(),
    );
    for line in [
        "rabbitmq_detailed_channel_messages_published_total{channel=\"[::1]:1 -> [::1]:5672 (7)\"} 8",
        "rabbitmq_detailed_channel_messages_acked_total{channel=\"[::1]:1 -> [::1]:5672 (7)\"} 2",
        "rabbitmq_detailed_exchange_messages_published_total{vhost=\"/\",exchange=\"x\"} 5",
        "rabbitmq_detailed_exchange_messages_unroutable_returned_total{vhost=\"/\",exchange=\"x\"} 2",
        "rabbitmq_detailed_exchange_messages_unroutable_dropped_total{vhost=\"/\",exchange=\"x\"} 1",
        "lepus_exchange_messages_routed_total{vhost=\"/\",exchange=\"x\"} 9",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
}

#[test]
fn groups_that_nobody_knows_and_those_without_a_meaning_are_empty() {
    assert_eq!(
        told("family=nonsense&family=ra_metrics&family=channel_process_metrics", &rows()),
        ""
    );
    assert_eq!(told("", &rows()), "");
    assert!(Wish::read("family=%zz").is_err());
}

/// What one group tells already is not told by another once more: a name stands once on a page.
#[test]
fn a_count_of_consumers_is_told_once() {
    let page = told("family=queue_consumer_count&family=queue_metrics", &rows());
    assert_eq!(page.matches("# TYPE rabbitmq_detailed_queue_consumers ").count(), 1);
    let page = told("family=queue_consumer_count", &rows());
    assert_eq!(page.matches("# TYPE").count(), 2, "{page}");
    let mut page = String::new();
    write(&Wish::PerObject, &rows(), &mirror(), |part| {
        page.push_str(&part);
        true
    });
    let mut names: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(page.contains("rabbitmq_endpoint=\"per-object\""));
}

#[test]
fn a_long_page_is_given_away_in_parts_until_nobody_wants_more() {
    let mut rows = rows();
    rows.left_out = 9;
    rows.channels = (0..20_000).map(|number| channel(ConnectionId::default(), number)).collect();
    let wish = Wish::read("family=channel_metrics").unwrap();
    let mut parts = Vec::new();
    write(&wish, &rows, &mirror(), |part| {
        parts.push(part.len());
        true
    });
    assert!(parts.len() > 100 && parts.iter().all(|bytes| *bytes < PART_BYTES + 1024), "{parts:?}");
    assert!(told("", &rows).ends_with("\nlepus_objects_left_out 9\n"));
    let mut given = 0;
    write(&wish, &rows, &mirror(), |_| {
        given += 1;
        given < 3
    });
    assert_eq!(given, 3);
}
