//! Properties: what is valid can be read field by field and rewritten.
#![no_main]

use lepus_amqp::properties::{Change, Edit};
use lepus_amqp::{Properties, PropertiesRef};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let properties = PropertiesRef(bytes);
    if properties.validate().is_err() {
        return;
    }
    let unchanged =
        properties.rewrite(&Edit::default()).expect("valid properties can be rewritten");
    let again = PropertiesRef(&unchanged);
    again.validate().expect("rewritten properties are valid");
    assert_eq!(again.delivery_mode(), properties.delivery_mode());
    assert_eq!(again.priority(), properties.priority());
    assert_eq!(again.timestamp(), properties.timestamp());
    assert_eq!(again.headers(), properties.headers());
    assert_eq!(again.reply_to(), properties.reply_to());
    assert_eq!(again.expiration(), properties.expiration());
    assert_eq!(again.user_id(), properties.user_id());
    assert_eq!(again.cluster_id(), properties.cluster_id());

    let edit = Edit {
        expiration: Change::Remove,
        reply_to: Change::Set(b"amq.rabbitmq.reply-to.x"),
        ..Edit::default()
    };
    let edited = properties.rewrite(&edit).expect("an edit that fits");
    let edited = PropertiesRef(&edited);
    edited.validate().expect("edited properties are valid");
    assert_eq!(edited.expiration(), None);
    assert_eq!(edited.reply_to(), Some(&b"amq.rabbitmq.reply-to.x"[..]));
    assert_eq!(edited.headers(), properties.headers());

    if let Ok(owned) = Properties::decode(bytes) {
        PropertiesRef(&owned.to_bytes()).validate().expect("encoded properties are valid");
    }
});
