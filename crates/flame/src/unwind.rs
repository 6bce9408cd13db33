//! From a sample to the addresses of the functions that were under way.

use std::collections::HashMap;

use framehop::{CacheNative, ExplicitModuleSectionInfo, Unwinder as _, UnwinderNative};
use lepus_profile::{Registers, Sample};

use crate::maps::{Module, modules};

/// Frames of one stack that are kept, the innermost ones.
pub(crate) const FRAMES_MAX: usize = 128;

/// What was found on a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The thread was in a system call.
    pub(crate) is_in_kernel: bool,
    /// The outermost function was not reached.
    pub(crate) is_cut: bool,
}

/// Walks stacks of this process, by the unwind tables of the files that were mapped when it was made.
pub struct Unwinder {
    modules: Vec<Module>,
    tables: UnwinderNative<Vec<u8>, framehop::MayAllocateDuringUnwind>,
    cache: CacheNative<framehop::MayAllocateDuringUnwind>,
    /// Code by the module's index.
    code: Vec<Option<(u64, Vec<u8>)>>,
    /// Whether the instruction before an address is a system call.
    calls: HashMap<u64, bool>,
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("modules", &self.modules).finish_non_exhaustive()
    }
}

impl Unwinder {
    /// An unwinder for this process as it is.
    ///
    /// # Errors
    /// When the system does not tell what is mapped.
    pub fn new() -> std::io::Result<Unwinder> {
        let mut unwinder = Unwinder {
            modules: Vec::new(),
            tables: UnwinderNative::new(),
            cache: CacheNative::new(),
            code: Vec::new(),
            calls: HashMap::new(),
        };
        for (module, sections) in modules()? {
            let (eh_frame_svma, eh_frame) = sections.eh_frame.unzip();
            let (eh_frame_hdr_svma, eh_frame_hdr) = sections.eh_frame_hdr.unzip();
            let info = ExplicitModuleSectionInfo {
                text_svma: sections.text.as_ref().map(|(range, _)| range.clone()),
                text: sections.text.as_ref().map(|(_, bytes)| bytes.clone()),
                got_svma: sections.got,
                eh_frame_svma,
                eh_frame,
                eh_frame_hdr_svma,
                eh_frame_hdr,
                ..ExplicitModuleSectionInfo::default()
            };
            if info.eh_frame.is_some() {
                let (name, range) = (module.path.clone(), module.range.clone());
                unwinder.tables.add_module(framehop::Module::new(name, range, module.bias, info));
            }
            let start = |start: u64| start.wrapping_add(module.bias);
            let code = sections.text.map(|(range, bytes)| (start(range.start), bytes));
            unwinder.code.push(code);
            unwinder.modules.push(module);
        }
        Ok(unwinder)
    }

    /// The modules.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Puts the addresses of a sample's frames into `frames`, innermost first: the one that ran, then
    /// for each caller one within its call.
    pub(crate) fn walk(&mut self, sample: &Sample<'_>, frames: &mut Vec<u64>) -> Found {
        frames.clear();
        let Registers { pc, sp, .. } = sample.registers;
        let mut word = |address: u64| {
            let offset = address.checked_sub(sp).ok_or(())?;
            let index = usize::try_from(offset / 8).map_err(|_| ())?;
            sample.stack.get(index).copied().filter(|_| offset % 8 == 0).ok_or(())
        };
        let registers = first(sample.registers);
        let mut iter = self.tables.iter_frames(pc, registers, &mut self.cache, &mut word);
        let mut is_cut = sample.is_cut;
        loop {
            match iter.next() {
                Ok(Some(frame)) if frames.len() < FRAMES_MAX => {
                    frames.push(frame.address_for_lookup());
                }
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => {
                    is_cut = true;
                    break;
                }
            }
        }
        Found { is_in_kernel: self.is_behind_system_call(pc), is_cut }
    }

    /// A signal that came while the kernel worked for a thread reaches it at the end of the call.
    fn is_behind_system_call(&mut self, pc: u64) -> bool {
        if let Some(known) = self.calls.get(&pc) {
            return *known;
        }
        let is_call = self.code.iter().flatten().any(|(start, bytes)| {
            let end = pc.checked_sub(*start).and_then(|offset| usize::try_from(offset).ok());
            let before = end.and_then(|end| bytes.get(..end));
            before.is_some_and(|before| before.ends_with(SYSTEM_CALL))
        });
        self.calls.insert(pc, is_call);
        is_call
    }
}

#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: &[u8] = &[0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

#[cfg(target_arch = "x86_64")]
fn first(registers: Registers) -> framehop::UnwindRegsNative {
    framehop::UnwindRegsNative::new(registers.pc, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn first(registers: Registers) -> framehop::UnwindRegsNative {
    framehop::UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}
