//! Stacks inside the kernel, as `perf script` prints them.

use crate::tree::Tree;

/// Addresses from here on are the kernel's, on every machine that is sampled here.
const KERNEL: u64 = 1 << 63;

/// Reads what `perf script --fields comm,ip,sym` printed: for each sample the thread's name, then its
/// frames, innermost first, then an empty line. Frames outside the kernel are left out, samples
/// without any inside count for their thread.
#[must_use]
pub fn kernel_tree(text: &str) -> Tree {
    let mut tree = Tree::new("inside the kernel");
    let mut frames: Vec<&str> = Vec::new();
    let mut thread = None;
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            if let Some(thread) = thread.take() {
                let thread = format!("[{thread}]");
                let path = std::iter::once(thread.as_str()).chain(frames.iter().rev().copied());
                tree.add(path, 1);
            }
            frames.clear();
        } else if line.starts_with([' ', '\t']) && thread.is_some() {
            frames.extend(frame(line));
        } else {
            thread = Some(line.trim());
        }
    }
    tree.sort();
    tree
}

/// The name in `ffffffff81234567 do_syscall_64`, if the address is one of the kernel's.
fn frame(line: &str) -> Option<&str> {
    let (address, name) = line.trim().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    (address >= KERNEL).then_some(name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_grow_from_the_thread_and_end_at_the_border() {
        let text = "\
shard-0 
\tffffffff81a01234 copy_user_generic
\tffffffff81a00000 tcp_sendmsg
\tffffffff81000010 do_syscall_64
\t    7f0012345678 __send

shard-0
        ffffffff81a00000 tcp_sendmsg
        ffffffff81000010 do_syscall_64

a b 
\tffffffff81000099 [unknown]

";
        let tree = kernel_tree(text);
        let node = |name: &str| tree.nodes().iter().find(|node| node.name == name).unwrap();
        assert_eq!(tree.total(), 3);
        assert_eq!((node("[shard-0]").total, node("do_syscall_64").total), (2, 2));
        assert_eq!((node("tcp_sendmsg").own, node("copy_user_generic").own), (1, 1));
        assert_eq!(node("[a b]").total, 1);
        assert!(tree.nodes().iter().all(|node| node.name != "__send"));
        assert_eq!(kernel_tree("").total(), 0);
    }
}
