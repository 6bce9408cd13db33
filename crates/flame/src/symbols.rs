//! Names for addresses, from the files that were mapped in the sampled process.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use addr2line::{Loader, demangle_auto};

use crate::maps::{FileId, Module};
use crate::names::{module_path, short};

/// A file's names, looked for when the first address asks.
enum Source {
    Unopened,
    Open(Box<Loader>),
    /// Its names cannot be had.
    None,
}

/// Names for the addresses of a recording.
pub struct Symbols {
    process: u32,
    modules: Vec<(Module, Source)>,
    nameless: BTreeSet<String>,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbols").field("nameless", &self.nameless).finish_non_exhaustive()
    }
}

impl Symbols {
    /// For these modules of a process, which may have ended.
    #[must_use]
    pub fn new(process: u32, modules: &[Module]) -> Symbols {
        let modules = modules.iter().map(|module| (module.clone(), Source::Unopened)).collect();
        Symbols { process, modules, nameless: BTreeSet::new() }
    }

    /// Files without names for some of their addresses: stripped ones, and ones that are not there
    /// as they were.
    #[must_use]
    pub fn nameless(&self) -> Vec<String> {
        self.nameless.iter().cloned().collect()
    }

    /// The functions at an address, outermost first: several where some were inlined into others.
    pub fn names(&mut self, address: u64) -> Vec<String> {
        let process = self.process;
        let found = self.modules.iter_mut().find(|(module, _)| module.range.contains(&address));
        let Some((module, source)) = found else { return vec!["[unknown]".to_owned()] };
        if matches!(source, Source::Unopened) {
            *source =
                open(process, module).map_or(Source::None, |loader| Source::Open(Box::new(loader)));
        }
        let stated = address.wrapping_sub(module.bias);
        let names = match source {
            Source::Open(loader) => look_up(loader, stated),
            Source::Unopened | Source::None => Vec::new(),
        };
        if names.is_empty() {
            let path = Path::new(&module.path);
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let name = name.trim_matches(['[', ']']).to_owned();
            self.nameless.insert(name.clone());
            return vec![format!("[{name}]")];
        }
        names
    }
}

/// The module's file, if it is still the same one.
fn open(process: u32, module: &Module) -> Option<Loader> {
    let wanted = module.file?;
    let places = [
        PathBuf::from(format!("/proc/{process}/exe")),
        PathBuf::from(&module.path),
        PathBuf::from("/proc/self/exe"),
    ];
    let place = places.iter().find(|place| FileId::of(place) == Some(wanted))?;
    Loader::new(place).ok()
}

/// The functions at an address, outermost first. The project's release builds know lines and plain
/// names only, so a Rust function is named after the file that it stands in, be it inlined or not.
fn look_up(loader: &Loader, address: u64) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let Some(name) = frame.function.as_ref().and_then(|name| name.demangle().ok()) else {
                continue;
            };
            let path = frame.location.as_ref().and_then(|location| location.file);
            names.push((short(&name), path.and_then(module_path)));
        }
    }
    let symbol = loader.find_symbol(address);
    let symbol = symbol.map(|name| short(&demangle_auto(Cow::Borrowed(name), None)));
    let last = names.len().saturating_sub(1);
    let full = |(at, (name, path)): (usize, (String, Option<String>))| {
        let is_closure = name.starts_with('{');
        match (path, &symbol) {
            // The table of symbols knows whose closure it is, and what C calls its functions.
            (Some(_), Some(symbol)) if at == last && is_closure => symbol.clone(),
            (None, Some(symbol)) if at == last => symbol.clone(),
            (Some(path), _) if !name.contains("::") => format!("{path}::{name}"),
            _ => name,
        }
    };
    let mut full: Vec<String> = names.into_iter().enumerate().map(full).collect();
    if full.is_empty() {
        full.extend(symbol);
    }
    full.reverse();
    full
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::maps::modules;

    #[inline(never)]
    fn a_function_with_a_name_of_its_own() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn functions_of_this_program_and_of_its_library_are_named() {
        assert_eq!(a_function_with_a_name_of_its_own(), 7);
        let modules: Vec<Module> = modules().unwrap().into_iter().map(|(one, _)| one).collect();
        let mut symbols = Symbols::new(std::process::id(), &modules);
        let own = a_function_with_a_name_of_its_own as fn() -> u64 as usize as u64;
        let names = symbols.names(own + 1);
        // Where it comes from the debug information, the module is the file: without `tests`.
        let first = names.first().map(|name| name.replace("::tests::", "::"));
        let wanted = "lepus_flame::symbols::a_function_with_a_name_of_its_own";
        assert_eq!(first.as_deref(), Some(wanted), "{names:?}");
        let library = modules.iter().find(|module| module.path.contains("/libc.so")).unwrap();
        let named = (0..64).map(|at| library.range.start + 0x20000 + at * 4096);
        let named = named.flat_map(|address| symbols.names(address));
        assert!(named.filter(|name| !name.starts_with('[')).count() > 10, "dynamic symbols");
        assert_eq!(symbols.names(1), ["[unknown]"]);
    }

    #[test]
    fn another_file_at_the_same_path_gives_no_names() {
        let own = std::env::current_exe().unwrap();
        let mut file = FileId::of(&own).unwrap();
        file.inode += 1;
        let path = own.display().to_string();
        let module = Module { path, range: 0..u64::MAX, bias: 0, file: Some(file) };
        let mut symbols = Symbols::new(std::process::id(), &[module]);
        let name = own.file_name().unwrap().to_str().unwrap();
        assert_eq!(symbols.names(5000), [format!("[{name}]")]);
        assert_eq!(symbols.nameless(), [name]);
    }
}
