//! The user-id property names who published, or nothing.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::Properties;
use lepus_sim::World;

use crate::stage::everywhere;

fn by(user: &str) -> Properties {
    Properties { user_id: Some(user.into()), ..Properties::default() }
}

#[test]
fn the_own_name_is_fine_and_another_is_refused() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_with("", "q", &by("guest"), "x");
        let message = near.get_no_ack("q").unwrap();
        assert_eq!(message.properties.user_id.as_deref(), Some("guest"));
        far.publish_with("", "q", &by("ann"), "x");
        let refused = far.expect_refused();
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (60, 40)));
        assert_eq!(
            refused.text,
            "PRECONDITION_FAILED - user_id property set to 'ann' but authenticated user was \
             'guest'"
        );
        assert_eq!(near.get_no_ack("q"), None);
    });
}

#[test]
fn an_impersonator_may_name_anybody() {
    let world = World::new(1);
    world.add_user_with_tags("ann", "secret", &["impersonator"]);
    world.permit("ann", "/", ".*", ".*", ".*");
    let ann = world.connect_as(0, "ann", "secret").channel();
    ann.declare("q");
    ann.publish_with("", "q", &by("somebody"), "x");
    assert!(ann.get_no_ack("q").is_some());
}

#[test]
fn an_administrator_is_no_impersonator() {
    let world = World::new(1);
    world.add_user_with_tags("ann", "secret", &["administrator"]);
    world.permit("ann", "/", ".*", ".*", ".*");
    let ann = world.connect_as(0, "ann", "secret").channel();
    ann.publish_with("", "q", &by("somebody"), "x");
    assert_eq!(ann.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
}
