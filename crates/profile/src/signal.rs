//! Timers on threads' CPU clocks, and the handler of their signal: all of this crate's `unsafe`.
//!
//! What keeps it sound:
//! - The handler reads its thread's stack between the stack pointer and the stack's end only, by
//!   addresses that the thread itself asked for when it enrolled. It follows no pointer found there.
//! - It calls nothing but atomics: no allocation, no lock, no system call, no panic (indices are looked
//!   up with `get`). So it may interrupt anything, and leaves `errno` as it was.
//! - What it writes to lives until no handler can be inside: [`Running::stop`] takes the pointer
//!   away first and then waits until those that may have read it before have left.
//! - A signal that comes late, or from elsewhere, finds no pointer or another session's number and is
//!   ignored. The handler stays installed for good: the default action would end the process.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use libc::{c_int, c_void};

use crate::sample::{Head, Registers, Samples};
use crate::thread::Member;

/// What handlers use.
pub(crate) struct Shared {
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) samples: Samples,
}

/// `Shared` with the number that its timers carry.
struct Active {
    session: u32,
    shared: Shared,
}

/// What handlers work for; null while there is no session.
static ACTIVE: AtomicPtr<Active> = AtomicPtr::new(ptr::null_mut());
/// Handlers that are inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The number of the last session.
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// A session whose timers run. One at a time: the caller sees to that.
pub(crate) struct Running {
    active: *mut Active,
    timers: Vec<libc::timer_t>,
}

// SAFETY: `active` is owned by this value alone and `Active` is `Send` and `Sync`; a timer's number
// means the same on every thread of the process.
unsafe impl Send for Running {}

impl Running {
    /// Installs the handler and starts a timer per member, each `rate` times per second of the
    /// thread's own CPU time. The caller holds the list of members, so that none of them ends.
    pub(crate) fn start(shared: Shared, rate: u32) -> Result<Running, String> {
        install().map_err(|error| format!("the signal handler cannot be installed: {error}"))?;
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let threads: Vec<u32> = shared.members.iter().map(|member| member.thread).collect();
        let active = Box::into_raw(Box::new(Active { session, shared }));
        let mut running = Running { active, timers: Vec::new() };
        ACTIVE.store(active, Ordering::SeqCst);
        for (index, thread) in threads.into_iter().enumerate() {
            let value = u64::from(session) << 32 | index as u64;
            match start_timer(thread, value, rate) {
                Ok(timer) => running.timers.push(timer),
                Err(error) => {
                    return Err(format!("the system gives no timer for a thread: {error}"));
                }
            }
        }
        Ok(running)
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: made from a `Box` in `start`, freed in `drop` only, and never borrowed mutably.
        unsafe { &(*self.active).shared }
    }

    /// Ends the timers; when this returns no handler is inside or will find anything.
    pub(crate) fn stop(&mut self) {
        for timer in self.timers.drain(..) {
            // SAFETY: a timer of ours, deleted once. It cannot fail but for a wrong number.
            unsafe { libc::timer_delete(timer) };
        }
        ACTIVE.store(ptr::null_mut(), Ordering::SeqCst);
        while INSIDE.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: from `Box::into_raw` in `start`; `stop` has seen to it that nobody else has it:
        // a handler counts itself in before it reads the pointer, both in one order for all threads.
        drop(unsafe { Box::from_raw(self.active) });
    }
}

/// The calling thread's number and the addresses of its stack.
pub(crate) fn current_thread() -> Option<(u32, Range<u64>)> {
    // SAFETY: has no conditions and cannot fail.
    let thread = unsafe { libc::gettid() };
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: asks about the calling thread; on success, which is checked, `attributes` is set.
    let found = unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) };
    if found != 0 {
        return None;
    }
    let (mut base, mut size) = (ptr::null_mut(), 0);
    // SAFETY: `attributes` was set by the call above; both places are ours.
    let told = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut base, &mut size) };
    // SAFETY: set above, and not used after this.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    let base = base as u64;
    (told == 0).then_some((u32::try_from(thread).ok()?, base..base.checked_add(size as u64)?))
}

/// The clock of the CPU time of a thread of this process, as Linux numbers them.
fn cpu_clock(thread: u32) -> libc::clockid_t {
    const PER_THREAD: libc::clockid_t = 4;
    const SCHEDULED_TIME: libc::clockid_t = 2;
    !(thread as libc::clockid_t) << 3 | PER_THREAD | SCHEDULED_TIME
}

fn start_timer(thread: u32, value: u64, rate: u32) -> io::Result<libc::timer_t> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut event: libc::sigevent = unsafe { zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGPROF;
    event.sigev_notify_thread_id = thread as c_int;
    event.sigev_value.sival_ptr = value as *mut c_void;
    let mut timer = ptr::null_mut();
    // SAFETY: both places are ours and live through the call; the kernel checks clock and thread.
    if unsafe { libc::timer_create(cpu_clock(thread), &mut event, &mut timer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let every = i64::from(1_000_000_000 / rate.max(1));
    let every = libc::timespec { tv_sec: every / 1_000_000_000, tv_nsec: every % 1_000_000_000 };
    let times = libc::itimerspec { it_interval: every, it_value: every };
    // SAFETY: a timer that was just made, and a place that the kernel only reads.
    if unsafe { libc::timer_settime(timer, 0, &times, ptr::null_mut()) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: as above; nobody else knows the timer.
        unsafe { libc::timer_delete(timer) };
        return Err(error);
    }
    Ok(timer)
}

/// Installs the handler, unless it is there.
fn install() -> io::Result<()> {
    let handler = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    // SAFETY: plain numbers, for which zero is a value.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { zeroed() };
    // SAFETY: reads the present action into a place of ours.
    if unsafe { libc::sigaction(libc::SIGPROF, ptr::null(), &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction == handler {
        return Ok(());
    }
    if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN {
        return Err(io::Error::other("the signal SIGPROF is in use for something else"));
    }
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: `action` is whole (its mask is empty), and `handle` is fit for being called at any
    // moment on any thread: see the head of this file.
    if unsafe { libc::sigaction(libc::SIGPROF, &action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `siginfo_t` as Linux fills it for a timer, on machines with 64-bit pointers.
#[repr(C)]
struct TimerInfo {
    signal: c_int,
    error: c_int,
    code: c_int,
    _gap: c_int,
    timer: c_int,
    overrun: c_int,
    value: u64,
}

const _: () = assert!(size_of::<TimerInfo>() <= size_of::<libc::siginfo_t>());

extern "C" fn handle(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // First this, then the pointer: see `Running::stop`.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let active = ACTIVE.load(Ordering::SeqCst);
    if !active.is_null() {
        // SAFETY: not freed while this handler counts as inside. The kernel hands a handler of this
        // kind (SA_SIGINFO) valid pointers to both structures, aligned, for the time of the call;
        // `TimerInfo` names the first fields of the one, whose layout is the kernel's interface.
        let (active, info, context) =
            unsafe { (&*active, &*info.cast::<TimerInfo>(), &*context.cast::<libc::ucontext_t>()) };
        if info.code == libc::SI_TIMER && (info.value >> 32) as u32 == active.session {
            take(&active.shared, info.value as u32 as usize, info.overrun, registers(context));
        }
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let all = &context.uc_mcontext.gregs;
    let get = |index: c_int| all[index as usize] as u64;
    Registers { pc: get(libc::REG_RIP), sp: get(libc::REG_RSP), fp: get(libc::REG_RBP), lr: 0 }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    let (fp, lr) = (machine.regs[29], machine.regs[30]);
    Registers { pc: machine.pc, sp: machine.sp, fp, lr }
}

/// Copies what is known about the calling thread, which is the member of this index.
fn take(shared: &Shared, index: usize, overrun: c_int, registers: Registers) {
    let Some(member) = shared.members.get(index) else { return };
    // Outside its stack (on another one, made for signals) nothing is read.
    let is_inside = member.stack.contains(&registers.sp) && registers.sp.is_multiple_of(8);
    let end = if is_inside { member.stack.end } else { registers.sp };
    let deep = ((end - registers.sp) / 8) as usize;
    let words = deep.min(shared.samples.stack_words());
    let head = Head {
        thread: index,
        phase: member.mark.get() as u8,
        weight: overrun.max(0) as u32 + 1,
        registers,
        is_cut: words < deep,
    };
    let base = registers.sp as *const u64;
    shared.samples.put(head, words, |index| {
        // SAFETY: `index < words`, so the word lies within this thread's stack, above its stack
        // pointer: mapped and aligned, and nobody writes to it while this thread is here. What a
        // word means is not asked, and the compiler is told nothing about it by a volatile read.
        unsafe { base.add(index).read_volatile() }
    });
}
