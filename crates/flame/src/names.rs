//! Names of functions, made short enough to be read.

/// The name without what stands in angle brackets: `<a::B<C> as d::E>::f::<G>` becomes `a::B::f`.
/// Names that do not look like Rust's stay as they are.
#[must_use]
pub fn short(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find('<') {
        let Some(length) = closing(&rest[open..]) else { break };
        let inside = &rest[open + 1..open + length];
        let before = &rest[..open];
        if before.is_empty() && out.is_empty() {
            // `<T as Trait>::f` and `<T>::f`: the type says where it belongs.
            let owner = top_level_as(inside).map_or(inside, |at| &inside[..at]);
            out.push_str(&short(owner.trim_start_matches(['&', '*']).trim_start_matches("mut ")));
        } else {
            out.push_str(before.strip_suffix("::").unwrap_or(before));
        }
        rest = &rest[open + length + 1..];
    }
    out.push_str(rest);
    out.replace("{{closure}}", "{closure}")
}

/// The module that a file of Rust's holds: `…/crates/broker/src/queue/index.rs` is
/// `lepus_broker::queue::index`, `…/slab-0.4.9/src/lib.rs` is `slab`.
pub(crate) fn module_path(file: &str) -> Option<String> {
    let (directory, file) = file.strip_suffix(".rs")?.rsplit_once("/src/")?;
    let mut places = directory.rsplit('/');
    let name = places.next()?;
    let prefix = if places.next() == Some("crates") { "lepus_" } else { "" };
    // `hashbrown-0.17.0`: a version begins with a digit.
    let version = name.match_indices('-').map(|(at, _)| at).find(|at| {
        let rest = &name[at + 1..];
        rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.contains('.')
            && !rest.split('.').next().is_some_and(|first| first.contains('-'))
    });
    let name = name[..version.unwrap_or(name.len())].replace('-', "_");
    let mut module = format!("{prefix}{name}");
    for part in file.split('/').filter(|part| !["lib", "main", "mod"].contains(part)) {
        module.push_str("::");
        module.push_str(part);
    }
    Some(module)
}

/// The last part of a path: `lepus_broker::queue::Queue::enqueue` becomes `Queue::enqueue`.
pub(crate) fn tail(name: &str) -> &str {
    let mut ends = name.rmatch_indices("::").map(|(at, _)| at + 2);
    match (ends.next(), ends.next()) {
        (Some(last), Some(before)) => {
            // A type begins with a capital letter and belongs to the name, a module does not.
            let owner = &name[before..last];
            let says_much = owner.starts_with(|c: char| c.is_ascii_uppercase() || c == '{')
                || name[last..].starts_with('{');
            if says_much { &name[before..] } else { &name[last..] }
        }
        _ => name,
    }
}

/// Where the bracket that `text` begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Where ` as ` stands outside of inner brackets.
fn top_level_as(text: &str) -> Option<usize> {
    text.match_indices(" as ").map(|(at, _)| at).find(|at| {
        let before = &text[..*at];
        before.matches('<').count() == before.matches('>').count() - before.matches("->").count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angle_brackets_go_and_types_stay() {
        for (long, wanted) in [
            ("lepus_shard::shard::Shard<C,R>::turn", "lepus_shard::shard::Shard::turn"),
            ("<lepus_shard::shard::Shard<a::B, c::D>>::turn", "lepus_shard::shard::Shard::turn"),
            ("<a::B<C> as d::E<F>>::f::<G>", "a::B::f"),
            ("<&mut a::B as d::E>::f", "a::B::f"),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            ),
            ("a::b::{{closure}}", "a::b::{closure}"),
            ("a::run::<fn(u8) -> b::C<u8>>::{closure#0}", "a::run::{closure#0}"),
            ("__memmove_avx_unaligned_erms", "__memmove_avx_unaligned_erms"),
            ("operator<", "operator<"),
            ("", ""),
        ] {
            assert_eq!(short(long), wanted);
        }
    }

    #[test]
    fn files_tell_modules() {
        for (file, wanted) in [
            ("/x/crates/broker/src/queue/index.rs", Some("lepus_broker::queue::index")),
            ("/rustc/1f/library/core/src/iter/range.rs", Some("core::iter::range")),
            ("/h/registry/src/i-6f17/md-5-0.11.0/src/lib.rs", Some("md_5")),
            ("/h/registry/src/i-6f17/hashbrown-0.17.0/src/raw/mod.rs", Some("hashbrown::raw")),
            ("./io/write.c", None),
            ("x.rs", None),
        ] {
            assert_eq!(module_path(file).as_deref(), wanted, "{file}");
        }
    }

    #[test]
    fn a_path_is_cut_to_its_telling_end() {
        assert_eq!(tail("lepus_broker::queue::Queue::enqueue"), "Queue::enqueue");
        assert_eq!(tail("lepus_shard::duty::run"), "run");
        assert_eq!(tail("a::b::run::{closure}"), "run::{closure}");
        assert_eq!(tail("write"), "write");
        assert_eq!(tail("[kernel: write]"), "[kernel: write]");
    }
}
