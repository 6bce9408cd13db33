//! Where a machine is read from.

use crate::ids::Ids;
use crate::machine::{Interrupt, Limits, Machine, Node};
use crate::{cgroup, cpus, description, hwloc, memory};
use std::fs;
use std::path::Path;

/// The largest description that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads the running machine: hwloc's view, completed by what the kernel tells (free memory,
/// interrupts, the limits of this program). Where hwloc fails, a machine of one node remains, with
/// a note of why.
#[must_use]
pub fn running() -> (Machine, Option<String>) {
    let (mut machine, note) = match hwloc::running() {
        Ok(machine) => (machine, None),
        Err(error) => (flat(), Some(error)),
    };
    let usable = cpus::usable_cpus();
    let affinity: Ids = usable.ids.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
    machine.limits = Limits {
        cpus: (!machine.cpu_ids().is_within(&affinity)).then_some(affinity),
        nodes: allowed_nodes(&machine),
        quota: usable.quota,
        memory_bytes: memory::control_group_bytes(),
    };
    let root = Path::new("/sys");
    let count = machine.nodes.len();
    for node in &mut machine.nodes {
        let cpus = complete_node(root, node, count);
        for cpu in machine.cpus.iter_mut().filter(|cpu| cpus.contains(cpu.id)) {
            cpu.node = node.id;
        }
    }
    for device in &mut machine.devices {
        if device.address.is_empty() {
            continue;
        }
        let directory = root.join("bus/pci/devices").join(&device.address);
        if let Some(node) = number(&directory.join("numa_node")).filter(|_| count > 1) {
            let known = machine.nodes.iter().any(|known| i64::from(known.id) == node);
            device.node = u32::try_from(node).ok().filter(|_| known);
        }
        device.interrupts = interrupts(&directory, Path::new("/proc"));
    }
    // The affinity is never empty, so that only a machine that changes meanwhile is turned away.
    let checked = machine.check();
    match checked {
        Ok(machine) => (machine, note),
        Err(error) => (flat(), Some(note.unwrap_or(error))),
    }
}

/// Machines that are known by name, for plans without a file.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("leviathan", include_str!("../machines/leviathan.toml")),
    ("artemis", include_str!("../machines/artemis.toml")),
];

/// Reads a machine from a file: hwloc's XML (`.xml`), or a description in TOML. What is no file
/// but contains a colon is taken for hwloc's synthetic form (`numa:2 core:4 pu:1`); one of
/// [`EXAMPLES`] is found by its name.
///
/// # Errors
/// In words, with the file's name.
pub fn from_file(name: &str) -> Result<Machine, String> {
    let path = Path::new(name);
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(_) if let Some((_, text)) = EXAMPLES.iter().find(|(known, _)| *known == name) => {
            return description::read(text);
        }
        Err(_) if name.contains(':') && !name.contains('/') => return hwloc::from_synthetic(name),
        Err(error) => return Err(format!("cannot read {name}: {error}")),
    };
    if length > FILE_BYTES_MAX {
        return Err(format!("{name} is longer than {} MiB", FILE_BYTES_MAX >> 20));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    let is_xml = text.trim_start().starts_with('<');
    let read = if is_xml { hwloc::from_xml(&text) } else { description::read(&text) };
    let mut machine = read.map_err(|error| format!("{name}: {error}"))?;
    if machine.name.is_empty() {
        machine.name =
            path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    }
    Ok(machine)
}

/// One node with all CPUs: the machine of which nothing is known.
fn flat() -> Machine {
    let ids = cpus::usable_cpus().ids;
    let cpu = |(core, id): (usize, &usize)| crate::machine::Cpu {
        id: u32::try_from(*id).unwrap_or(0),
        core: u32::try_from(core).unwrap_or(0),
        package: 0,
        node: 0,
    };
    let cpus: Vec<_> = ids.iter().enumerate().map(cpu).collect();
    let node = Node {
        cpus: cpus.iter().map(|cpu| cpu.id).collect(),
        bytes: memory::machine_bytes().unwrap_or(0),
        ..Node::default()
    };
    Machine { cpus, nodes: vec![node], ..Machine::default() }
}

/// The nodes whose memory the program may use, when they are not all.
fn allowed_nodes(machine: &Machine) -> Option<Ids> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let allowed: Ids = crate::kernel::status_field(&text, "Mems_allowed_list")?.parse().ok()?;
    let all: Ids = machine.nodes.iter().map(|node| node.id).collect();
    (!all.is_within(&allowed)).then_some(allowed)
}

/// Free memory and distances as the kernel tells them; returns the node's CPUs.
fn complete_node(root: &Path, node: &mut Node, nodes: usize) -> Ids {
    let directory = root.join(format!("devices/system/node/node{}", node.id));
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    node.free_bytes = memory::node_free_bytes(&read("meminfo"));
    let distances = read("distance");
    let distances: Vec<u32> =
        distances.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if distances.len() == nodes {
        node.distances = distances;
    }
    read("cpulist").parse().unwrap_or_default()
}

/// Bytes of a node of the running machine that are free now.
#[must_use]
pub fn free_bytes(node: u32) -> Option<u64> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    memory::node_free_bytes(&fs::read_to_string(path).ok()?)
}

fn number(path: &Path) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The interrupts of a PCI device or, where it is a virtual bus, of what sits on it.
fn interrupts(device: &Path, proc: &Path) -> Vec<Interrupt> {
    let Ok(entries) = fs::read_dir(device.join("msi_irqs")) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let affinity = |number: u32| {
        let directory = proc.join(format!("irq/{number}"));
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok()?.parse::<Ids>().ok();
        let effective = read("effective_affinity_list").filter(|cpus| !cpus.is_empty());
        effective.or_else(|| read("smp_affinity_list")).unwrap_or_default()
    };
    numbers.into_iter().map(|number| Interrupt { number, cpus: affinity(number) }).collect()
}

/// The control group's cpuset, as text for people; none where no group sets one.
#[must_use]
pub fn cpuset() -> Option<String> {
    let unified = cgroup::along_path("", |directory| {
        fs::read_to_string(directory.join("cpuset.cpus.effective")).ok()
    });
    let divided = cgroup::along_path("cpuset", |directory| {
        fs::read_to_string(directory.join("cpuset.effective_cpus")).ok()
    });
    let text = unified.into_iter().chain(divided).next()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
