//! Messages that come back because no queue takes them.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};

use crate::stage::everywhere;

#[test]
fn an_unroutable_mandatory_message_comes_back_whole_and_at_once() {
    everywhere(|stage| {
        let alice = stage.far();
        let properties = Properties {
            content_type: Some("text/plain".into()),
            headers: Some(Table::new().with("n", 1)),
            delivery_mode: Some(2),
            correlation_id: Some("c".into()),
            ..Properties::default()
        };
        let body = vec![b'x'; 300_000];
        alice.publish_raw("amq.direct", "no key", true, &properties.to_bytes(), &body);
        let returned = alice.returns();
        assert_eq!(returned.len(), 1);
        let returned = &returned[0];
        assert_eq!((returned.code, returned.text.as_str()), (ReplyCode::NO_ROUTE, "NO_ROUTE"));
        assert_eq!((returned.exchange.as_str(), returned.key.as_str()), ("amq.direct", "no key"));
        assert_eq!((&returned.properties, &returned.body), (&properties, &body));
    });
}

#[test]
fn a_routed_or_not_mandatory_message_does_not_come_back() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_mandatory("", "q", "1");
        far.publish("", "nowhere", "2");
        assert_eq!(far.returns(), []);
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn the_return_comes_before_the_confirm() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.confirm_select();
        let _ = far.order();
        far.client().together(|| {
            far.publish("", "q", "1");
            far.publish_mandatory("", "nowhere", "2");
            far.publish("", "q", "3");
        });
        let order = far.order();
        let place = |name: &str| order.iter().position(|&found| found == name).unwrap();
        assert!(place("basic.return") < order.len() - 1);
        // The confirm that covers publish 2 must not come first.
        let acks_before =
            order[..place("basic.return")].iter().filter(|&&name| name == "basic.ack").count();
        let first_acks: Vec<_> = far.confirms().into_iter().take(acks_before).collect();
        for confirm in first_acks {
            let lepus_sim::Confirm::Ack { tag, .. } = confirm else { panic!("{confirm:?}") };
            assert!(tag < 2);
        }
    });
}

#[test]
fn a_queue_that_was_deleted_no_longer_takes_messages() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_mandatory("", "q", "1");
        near.delete("q");
        far.publish_mandatory("", "q", "2");
        assert_eq!(far.returns().len(), 1);
    });
}

#[test]
fn a_message_with_one_good_copy_does_not_come_back() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let headers = Table::new().with("CC", vec![Value::from("q")]);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        far.publish_raw("", "nowhere", true, &properties.to_bytes(), b"x");
        assert_eq!(far.returns(), []);
        assert_eq!(near.purge("q"), 1);
    });
}
