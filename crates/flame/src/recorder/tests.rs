use super::*;
use crate::profile::{Profile, Scope};
use crate::symbols::Symbols;
use lepus_profile::{Group, Mark, Phase, Session, enroll_with};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// Three functions on each other: the innermost works until told to stop.
#[inline(never)]
fn innermost(over: &AtomicBool) -> u64 {
    let mut sum = 1_u64;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            sum = black_box(sum.wrapping_mul(31));
        }
    }
    sum
}

#[inline(never)]
fn middle(over: &AtomicBool) -> u64 {
    // A frame larger than a register or two, and something to do after the call.
    let room = black_box([1_u64; 50]);
    innermost(over).wrapping_add(room[7])
}

#[inline(never)]
fn outermost(over: &AtomicBool) -> u64 {
    middle(over).wrapping_mul(black_box(3))
}

#[test]
fn a_known_stack_is_walked_and_named() {
    let (over, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let recording = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mark = Mark::default();
            let _enrolled = enroll_with(Group::Shard(4), mark.clone());
            mark.set(Phase::Handle);
            ready.store(true, Ordering::Release);
            black_box(outermost(&over));
        });
        while !ready.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut recorder = Recorder::new().unwrap();
        let mut session = Session::start(500).unwrap();
        while recorder.samples < 10 {
            session.drain(|sample| recorder.take(&sample));
            std::thread::yield_now();
        }
        let summary = session.finish(|sample| recorder.take(&sample));
        over.store(true, Ordering::Relaxed);
        recorder.finish(&summary, 500, 1.0)
    });
    let ticks: u64 = recording.stacks.iter().map(|stack| stack.ticks).sum();
    assert!(ticks >= 10 && recording.cut == 0, "{recording:?}");
    let mut symbols = Symbols::new(recording.process, &recording.modules);
    let profile = Profile::new(&recording, |address| symbols.names(address));
    let wanted = ["outermost", "middle", "innermost"]
        .map(|name| format!("lepus_flame::recorder::tests::{name}"));
    let mut walked = 0;
    for stack in profile.of(Scope::Shard(4)) {
        assert_eq!(stack.frames[0], "[handle]", "{stack:?}");
        let at = stack.frames.iter().position(|name| *name == wanted[0]);
        if at.is_some_and(|at| stack.frames[at..].starts_with(&wanted)) {
            walked += stack.ticks;
        }
    }
    // One that came before the first call or after the last may miss them.
    assert!(walked + 2 >= ticks, "{walked} of {ticks}: {profile:?}");
}
