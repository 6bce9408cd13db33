//! Control groups of this process (Linux, versions 1 and 2).

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// The path of this process's group in the hierarchy of `controller`, out of `/proc/self/cgroup`.
/// The empty controller is the unified hierarchy of version 2.
pub(crate) fn parse_group<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let _id = fields.next()?;
        let controllers = fields.next()?;
        let path = fields.next()?;
        let named = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == controller)
        };
        named.then_some(path)
    })
}

/// The values that `read` finds in the process's group and in all groups above it. Inside a
/// container the named group may not be visible; the visible root is always among those asked.
pub(crate) fn along_path<T>(controller: &str, mut read: impl FnMut(&Path) -> Option<T>) -> Vec<T> {
    let Ok(text) = fs::read_to_string("/proc/self/cgroup") else {
        return Vec::new();
    };
    let Some(group) = parse_group(&text, controller) else {
        return Vec::new();
    };
    let root = Path::new(ROOT).join(controller);
    ancestors(&root, group).iter().filter_map(|directory| read(directory)).collect()
}

/// The group's directory and those above it up to `root`.
fn ancestors(root: &Path, group: &str) -> Vec<PathBuf> {
    let relative = Path::new(group.trim_start_matches('/'));
    relative
        .ancestors()
        .filter(|part| !part.components().any(|c| c.as_os_str() == ".."))
        .map(|part| root.join(part))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_group_is_the_line_without_controllers() {
        let text = "12:cpu,cpuacct:/docker/abc\n3:memory:/m:x\n0::/user.slice/a\n";
        assert_eq!(parse_group(text, ""), Some("/user.slice/a"));
        assert_eq!(parse_group(text, "cpu"), Some("/docker/abc"));
        assert_eq!(parse_group(text, "memory"), Some("/m:x"));
        assert_eq!(parse_group(text, "cpuset"), None);
        assert_eq!(parse_group("garbage\n\n1:", "cpu"), None);
    }

    #[test]
    fn all_groups_above_are_asked_and_none_outside() {
        let found = ancestors(Path::new("/r"), "/a/b");
        let wanted: Vec<PathBuf> = ["/r/a/b", "/r/a", "/r"].map(PathBuf::from).to_vec();
        assert_eq!(found, wanted);
        let outside = ancestors(Path::new("/r"), "/../x");
        assert_eq!(outside, [PathBuf::from("/r")]);
    }
}
