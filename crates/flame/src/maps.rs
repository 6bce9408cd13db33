//! Which files the process has mapped to run code from, and where.

use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment};
use serde::{Deserialize, Serialize};

/// What names a file, whatever became of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FileId {
    /// The device.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
    /// Its bytes.
    pub length: u64,
}

impl FileId {
    /// The file at this path, if there is one.
    #[must_use]
    pub fn of(path: &Path) -> Option<FileId> {
        std::fs::metadata(path).ok().as_ref().map(FileId::from)
    }
}

impl From<&Metadata> for FileId {
    fn from(file: &Metadata) -> FileId {
        FileId { device: file.dev(), inode: file.ino(), length: file.len() }
    }
}

/// A file with code, as it is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Module {
    /// Its path, or `[vdso]`.
    pub path: String,
    /// The addresses of its code.
    #[serde(flatten)]
    pub range: Range<u64>,
    /// What to take away from an address to get the one that the file itself speaks of.
    pub bias: u64,
    /// The file itself; `None` for one that is no file, and for a file that cannot be told.
    pub file: Option<FileId>,
}

/// What unwinding needs of a module.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    pub(crate) text: Option<(Range<u64>, Vec<u8>)>,
    pub(crate) eh_frame: Option<(Range<u64>, Vec<u8>)>,
    pub(crate) eh_frame_hdr: Option<(Range<u64>, Vec<u8>)>,
    pub(crate) got: Option<Range<u64>>,
}

/// One executable line of `/proc/self/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    offset: u64,
    path: String,
}

fn read_maps(text: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let executable = words.next()?.contains('x');
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        // The path is everything behind device and inode: it may contain spaces.
        let (_device, _inode) = (words.next()?, words.next()?);
        let path = words.collect::<Vec<_>>().join(" ");
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        (executable && !path.is_empty()).then_some(Mapping { range: start..end, offset, path })
    };
    text.lines().filter_map(mapping).collect()
}

/// The modules of this process with their sections; those that cannot be read are without.
///
/// # Errors
/// When the system does not tell what is mapped.
pub(crate) fn modules() -> std::io::Result<Vec<(Module, Sections)>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    Ok(read_maps(&text).into_iter().map(|mapping| module(mapping, &own)).collect())
}

fn module(mapping: Mapping, own: &Path) -> (Module, Sections) {
    let Mapping { range, offset, path } = mapping;
    let mut module = Module { path, range, bias: 0, file: None };
    let mut sections = Sections::default();
    if module.path == "[vdso]" {
        if let Some(image) = read_memory(&module.range)
            && let Ok(file) = object::File::parse(&*image)
        {
            sections = read_sections(&file);
            module.bias = module.range.start;
        }
        return (module, sections);
    }
    // The program's own path may name another file by now.
    let source = if Path::new(&module.path) == own {
        PathBuf::from("/proc/self/exe")
    } else {
        PathBuf::from(&module.path)
    };
    let Ok(opened) = File::open(&source) else { return (module, sections) };
    module.file = opened.metadata().ok().as_ref().map(FileId::from);
    let cache = object::ReadCache::new(opened);
    let Ok(file) = object::File::parse(&cache) else { return (module, sections) };
    let length = module.range.end - module.range.start;
    // A mapping begins at a whole page, so its first bytes may be another segment's last ones.
    let segment = file.segments().find(|segment| {
        let (start, size) = segment.file_range();
        let flags = segment.flags();
        let is_code = matches!(flags, object::SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
        is_code && start < offset + length && offset < start + size
    });
    let Some(segment) = segment else { return (module, sections) };
    let (start, _) = segment.file_range();
    let stated = segment.address().wrapping_sub(start).wrapping_add(offset);
    module.bias = module.range.start.wrapping_sub(stated);
    (module, read_sections(&file))
}

fn read_sections<'a>(file: &impl Object<'a>) -> Sections {
    let range = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let data = |name: &str| {
        let bytes = file.section_by_name(name)?.data().ok()?.to_vec();
        Some((range(name)?, bytes))
    };
    Sections {
        text: data(".text"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        got: range(".got"),
    }
}

/// Bytes of this process's memory, as far as the system lets it read itself.
fn read_memory(range: &Range<u64>) -> Option<Vec<u8>> {
    const BYTES_MAX: u64 = 1 << 20;
    let mut bytes = vec![0; usize::try_from((range.end - range.start).min(BYTES_MAX)).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, range.start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_read_with_their_paths() {
        let text = "\
5564a000-5564b000 r--p 00000000 fd:00 17 /usr/bin/a b
5564b000-5564c000 r-xp 00001000 fd:00 17                         /usr/bin/a b
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00000000 00:00 0
7ffd0000-7ffd2000 r-xp 00000000 00:00 0    [vdso]
nonsense
";
        let read = read_maps(text);
        let first = Mapping {
            range: 0x5564_b000..0x5564_c000,
            offset: 0x1000,
            path: "/usr/bin/a b".to_owned(),
        };
        assert_eq!(read.len(), 2, "{read:?}");
        assert_eq!(read[0], first);
        assert_eq!(read[1].path, "[vdso]");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_program_is_found_with_its_tables() {
        let here = executable_mappings_are_read_with_their_paths as fn() as usize as u64;
        let modules = modules().unwrap();
        let (module, sections) =
            modules.iter().find(|(module, _)| module.range.contains(&here)).unwrap();
        assert_eq!(module.file, FileId::of(Path::new("/proc/self/exe")));
        let (text, bytes) = sections.text.as_ref().unwrap();
        assert!(text.contains(&(here - module.bias)));
        assert_eq!(bytes.len() as u64, text.end - text.start);
        assert!(sections.eh_frame.is_some() && sections.eh_frame_hdr.is_some());
    }
}
