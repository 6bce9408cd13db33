//! What a shard holds, counted for metrics in steps.

use lepus_broker::Survey;
use lepus_sim::World;

/// A complete count, and how many steps it took.
fn count(world: &World) -> (Survey, usize) {
    let mut survey = Survey::default();
    let mut steps = 1;
    while !world.broker(0, |broker| broker.survey(&mut survey)) {
        steps += 1;
    }
    (survey, steps)
}

#[test]
fn queues_and_deliveries_are_counted_in_steps() {
    let world = World::new(1);
    let channel = world.channel(0);
    let (few, steps) = count(&world);
    assert_eq!((few.channels, few.ready, few.unacked, steps), (1, 0, 0, 1));
    for queue in 0..5_000 {
        channel.declare(&format!("q{queue}"));
    }
    channel.publish_all("q7", (0..40_000).map(|number: u32| number.to_string()));
    channel.publish("", "q4999", "x");
    channel.consume("q7", "c");
    world.channel(0).get("q4999").expect("a message");
    let (all, steps) = count(&world);
    assert_eq!((all.channels, all.publishers, all.consumers), (2, 1, 1));
    assert_eq!((all.ready, all.unacked), (0, 40_001));
    // 5,000 queues, and eight deliveries cost as much as one.
    assert!(steps > 10_000 / 1_024, "{steps} steps");
}

#[test]
fn queues_are_listed_in_steps_each_once() {
    const STEP: usize = 256;
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..5_000 {
        channel.declare(&format!("q{queue}"));
    }
    for queue in (0..5_000).step_by(7) {
        channel.delete(&format!("q{queue}"));
    }
    let (mut names, mut first) = (Vec::new(), 0);
    // A step looks at no more than it was told to.
    while let Some(found) = world.broker(0, |broker| {
        let found = broker.queues_in(first, STEP)?.map(|(id, _)| id).collect::<Vec<_>>();
        let names = found.into_iter().filter_map(|id| broker.directory.queue_by_id(id));
        Some(names.map(|info| info.name().to_owned()).collect::<Vec<_>>())
    }) {
        assert!(found.len() <= STEP, "{} queues in a step", found.len());
        names.extend(found);
        first += STEP;
    }
    let all = (0..5_000).filter(|queue| queue % 7 != 0);
    let mut expected: Vec<_> = all.map(|queue| format!("q{queue}")).collect();
    expected.sort();
    names.sort();
    assert_eq!(names, expected);
}
