use super::*;
use crate::phase::Mark;
use crate::registry::{enroll, enroll_with};
use std::hint::black_box;
use std::sync::Mutex;

/// One session per process: tests that start one take turns.
static TURNS: Mutex<()> = Mutex::new(());

/// Works until told to stop.
#[inline(never)]
fn work_hard(until: &AtomicBool) -> u64 {
    let mut sum = 1_u64;
    while !until.load(Ordering::Relaxed) {
        let mut left = 1000;
        while left > 0 {
            // Plain arithmetic: without optimisation too it lies in this function.
            sum = (sum ^ left) >> 1 | 1;
            left -= 1;
        }
    }
    sum
}

/// Tells the working thread to stop, also where the test has failed: it is waited for.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `look` while a thread of this group and phase works.
fn beside_work(group: Group, phase: Phase, look: impl FnOnce()) {
    let (over, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mark = Mark::default();
            let _enrolled = enroll_with(group, mark.clone());
            mark.set(phase);
            ready.store(true, Ordering::Release);
            black_box(work_hard(&over));
        });
        let _over = Over(&over);
        while !ready.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        look();
    });
}

#[test]
fn a_working_thread_is_seen_with_its_phase_and_its_stack() {
    let _turn = TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    beside_work(Group::Shard(3), Phase::Flush, || {
        let mut session = Session::start(500).unwrap();
        let mut seen = Vec::new();
        while seen.len() < 20 {
            session.drain(|sample| {
                assert_eq!(sample.phase(), Phase::Flush);
                assert!(sample.weight >= 1);
                assert!(!sample.stack.is_empty(), "its stack is known");
                seen.push((sample.thread, sample.registers.pc));
            });
            std::thread::yield_now();
        }
        let index = seen[0].0;
        assert_eq!(session.threads().nth(index).unwrap().1, Group::Shard(3));
        let summary = session.finish(|_| {});
        assert_eq!(summary.threads[index].group, Group::Shard(3));
        assert!(summary.threads[index].cpu_nanos.unwrap() > 10_000_000);
        // This very thread used CPU time and has not enrolled.
        assert!(!summary.unsampled.is_empty());
        // Twenty of them cannot all lie outside the one function that works.
        let start = work_hard as fn(&AtomicBool) -> u64 as usize as u64;
        let inside = seen.iter().filter(|(_, pc)| (start..start + 4096).contains(pc));
        assert!(inside.count() > 0, "{seen:x?} and {start:x}");
    });
}

#[test]
fn one_session_at_a_time_and_within_limits() {
    let _turn = TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(Session::start(0).unwrap_err(), StartError::Rate(0));
    assert_eq!(Session::start(RATE_MAX + 1).unwrap_err(), StartError::Rate(RATE_MAX + 1));
    let enrolled = enroll(Group::Service);
    let first = Session::start(100).unwrap();
    assert_eq!(Session::start(100).unwrap_err(), StartError::Busy);
    drop(first);
    drop(Session::start(100).unwrap());
    drop(enrolled);
    assert_eq!(Session::start(100).unwrap_err(), StartError::NoThreads);
    assert_eq!(Session::start(100).unwrap_err(), StartError::NoThreads, "its turn is given back");
}

#[test]
fn samples_without_room_are_counted() {
    let _turn = TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    beside_work(Group::Service, Phase::None, || {
        let session = Session::with(1000, 1).unwrap();
        // Nobody drains: the second tick has no room.
        while session.running.shared().samples.dropped() < 3 {
            std::thread::yield_now();
        }
        let mut left = 0;
        let summary = session.finish(|_| left += 1);
        assert_eq!(left, 1);
        assert!(summary.dropped >= 3);
    });
}

#[test]
fn threads_may_end_while_a_session_runs() {
    let _turn = TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _enrolled = enroll(Group::Service);
    for _ in 0..20 {
        let mut session = None;
        beside_work(Group::Files, Phase::None, || session = Some(Session::start(1000).unwrap()));
        // Its thread has ended or is about to: its timer, its last signals and its entry go.
        let summary = session.unwrap().finish(|sample| assert!(sample.thread < 2));
        assert_eq!(summary.threads.len(), 2);
        assert!(summary.threads.iter().any(|thread| thread.group == Group::Files));
    }
}
