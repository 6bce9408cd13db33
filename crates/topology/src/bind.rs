//! Binds threads to CPUs and their memory to nodes.

use crate::ids::Ids;
use std::io;

/// Where a thread's new memory is to lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// On the node of the CPU that touches it first.
    FirstTouch,
    /// On this node while it has room, then on others.
    Prefer(u32),
    /// Spread over these nodes, page by page.
    Interleave(Ids),
}

/// Binds the calling thread to some CPUs; threads that it starts begin there, too.
///
/// # Errors
/// When none of them may be used, or the system cannot bind.
pub fn bind_current_thread(cpus: &Ids) -> io::Result<()> {
    bind(None, cpus)
}

/// Binds a thread of this process, by the system's number, to some CPUs.
///
/// # Errors
/// As with [`bind_current_thread`], and when there is no such thread.
pub fn bind_thread(thread: u32, cpus: &Ids) -> io::Result<()> {
    bind(Some(thread), cpus)
}

#[cfg(target_os = "linux")]
fn bind(thread: Option<u32>, cpus: &Ids) -> io::Result<()> {
    use rustix::thread::{CpuSet, Pid, sched_setaffinity};
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let thread = match thread {
        Some(number) => {
            let number = i32::try_from(number).map_err(|_| missing())?;
            Some(Pid::from_raw(number).ok_or_else(missing)?)
        }
        None => None,
    };
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        let cpu = cpu as usize;
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(thread, &set)?)
}

#[cfg(not(target_os = "linux"))]
fn bind(_thread: Option<u32>, _cpus: &Ids) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sets where new memory of the calling thread lies; threads that it starts begin with the same.
/// What lies somewhere already stays there.
///
/// # Errors
/// When a node does not exist or may not be used, or when the system refuses the call, which some
/// containers do.
#[cfg(target_os = "linux")]
pub fn bind_current_memory(policy: &MemoryPolicy) -> io::Result<()> {
    let (mode, nodes) = match policy {
        MemoryPolicy::FirstTouch => (libc::MPOL_DEFAULT, Ids::new()),
        MemoryPolicy::Prefer(node) => (libc::MPOL_PREFERRED, [*node].into_iter().collect()),
        MemoryPolicy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes.clone()),
    };
    let mask = node_mask(&nodes)?;
    // The kernel looks at one bit less than it is told.
    let bits = if nodes.is_empty() { 0 } else { mask.len() * libc::c_ulong::BITS as usize + 1 };
    let pointer = if nodes.is_empty() { std::ptr::null() } else { mask.as_ptr() };
    // SAFETY: the kernel only reads `bits - 1` bits from `pointer`, which `mask` holds and which
    // lives until the call returns; without nodes it reads nothing. No memory of ours changes.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets where new memory of the calling thread lies.
///
/// # Errors
/// Always: this system has no such call.
#[cfg(not(target_os = "linux"))]
pub fn bind_current_memory(_policy: &MemoryPolicy) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// One bit per node in words as the kernel reads them.
#[cfg(target_os = "linux")]
fn node_mask(nodes: &Ids) -> io::Result<[libc::c_ulong; 16]> {
    let mut mask = [0; 16];
    let bits = libc::c_ulong::BITS;
    for node in nodes.iter() {
        let word = mask.get_mut((node / bits) as usize);
        *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % bits);
    }
    Ok(mask)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn nodes_become_bits() {
        let nodes: Ids = "0,3,64,127".parse().unwrap();
        let mask = node_mask(&nodes).unwrap();
        assert_eq!(&mask[..3], [0b1001, 1 | 1 << 63, 0]);
        assert!(node_mask(&"1024".parse().unwrap()).is_err());
    }

    #[test]
    fn a_thread_is_bound_and_the_kernel_agrees() {
        let bound = std::thread::spawn(|| {
            let first = *crate::usable_cpus().ids.first().unwrap() as u32;
            bind_current_thread(&[first].into_iter().collect()).unwrap();
            let state = crate::kernel::thread(crate::kernel::current_thread_id().unwrap()).unwrap();
            assert_eq!(state.allowed, [first].into_iter().collect());
            // A container may refuse it; a kernel that takes it must show it.
            if bind_current_memory(&MemoryPolicy::Prefer(0)).is_ok()
                && let Some(policy) = crate::kernel::memory_policy()
            {
                assert_eq!(policy, "prefer:0");
            }
            assert!(bind_current_thread(&Ids::new()).is_err());
            assert!(bind_current_memory(&MemoryPolicy::Prefer(5000)).is_err());
        });
        bound.join().unwrap();
    }
}
