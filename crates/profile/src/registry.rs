//! The list of the threads that may be sampled: each comes and goes by itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::phase::Mark;
use crate::signal;
use crate::thread::{Group, Member};

static MEMBERS: Mutex<Vec<Arc<Member>>> = Mutex::new(Vec::new());

/// The members; while the guard is held none comes and none goes.
pub(crate) fn members() -> MutexGuard<'static, Vec<Arc<Member>>> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Strikes the thread off the list when it is dropped, which is on that thread.
#[derive(Debug)]
pub struct Enrolled {
    member: Option<Arc<Member>>,
    /// It belongs to its thread.
    _stays: std::marker::PhantomData<*const ()>,
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        if let Some(member) = &self.member {
            members().retain(|other| !Arc::ptr_eq(other, member));
        }
    }
}

/// The calling thread may be sampled until the result is dropped. Where the system does not tell its
/// number or its stack, it is not.
#[must_use = "the thread is on the list for as long as this is held"]
pub fn enroll(group: Group) -> Enrolled {
    enroll_with(group, Mark::default())
}

/// The same for a thread that notes its phase at `mark`.
#[must_use = "the thread is on the list for as long as this is held"]
pub fn enroll_with(group: Group, mark: Mark) -> Enrolled {
    let member = signal::current_thread().map(|(thread, stack)| {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        Arc::new(Member { thread, name, group, mark, stack })
    });
    members().extend(member.clone());
    Enrolled { member, _stays: std::marker::PhantomData }
}
