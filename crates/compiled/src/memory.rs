//! Memory whose bytes are instructions.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};

/// Pages of instructions, which nobody can write to.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// Copies `text` to memory of its own, which may be executed and no longer be written.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub(crate) fn new(text: &[u8]) -> io::Result<Memory> {
        let bytes = text.len().max(1);
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the system chooses touches no memory that is in use.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, writable, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Memory { start, bytes };
        // SAFETY: the mapping has at least as many bytes, is writable, and nobody else knows of it.
        unsafe { start.as_ptr().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        let executable = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: the range is the mapping made above, to which no reference exists.
        unsafe { mprotect(start.as_ptr().cast(), bytes, executable) }?;
        Ok(memory)
    }

    /// The place so many bytes behind the start, which is within the memory.
    pub(crate) fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.bytes, "a function begins within the text");
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping that this value owns, and whoever calls into it borrows the value.
        // What the system says of it changes nothing: the mapping is no longer used.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
