//! The machine as a plain value: what it has, and what of it this program may use.

use crate::ids::Ids;

/// A machine, read from the running system or from a description.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Its name, for people.
    pub name: String,
    /// CPUs that are switched on, ascending by number. Never empty in a machine that passed
    /// [`Machine::check`].
    pub cpus: Vec<Cpu>,
    /// CPUs that exist and are switched off.
    pub offline: Ids,
    /// Memory nodes, ascending by number; at least one.
    pub nodes: Vec<Node>,
    /// Caches for data, the smallest level first.
    pub caches: Vec<Cache>,
    /// Devices on the PCI tree that are network cards or disks, or of which nothing better is known.
    pub devices: Vec<Device>,
    /// What the program may use of it.
    pub limits: Limits,
}

/// One CPU as the scheduler counts them: a hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The system's number.
    pub id: u32,
    /// Number of its core, counted over the whole machine. CPUs of one core are sibling threads.
    pub core: u32,
    /// Number of its package (socket).
    pub package: u32,
    /// Number of its memory node.
    pub node: u32,
}

/// A memory node (NUMA).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The system's number.
    pub id: u32,
    /// CPUs that are near it; none for memory alone.
    pub cpus: Ids,
    /// Its memory in bytes; 0 for CPUs alone.
    pub bytes: u64,
    /// Bytes of it that are free, where that is known.
    pub free_bytes: Option<u64>,
    /// Distances to the nodes, in the order of [`Machine::nodes`]; 10 is local. Empty if not known.
    pub distances: Vec<u32>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 to 5.
    pub level: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// The CPUs that share it.
    pub cpus: Ids,
}

/// What a device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A network card.
    Network,
    /// A disk.
    Disk,
    /// Something else.
    Other,
}

/// A device of the PCI tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is for.
    pub kind: DeviceKind,
    /// The system's names, such as `eth0`; empty if it has none.
    pub name: String,
    /// Its place in the PCI tree, `0000:03:00.0`; empty if not known.
    pub address: String,
    /// Vendor and device, `8086:1521`; empty if not known.
    pub model: String,
    /// The node that it is attached to, where that is known.
    pub node: Option<u32>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
}

/// One interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The system's number.
    pub number: u32,
    /// The CPUs that may serve it.
    pub cpus: Ids,
}

/// What limits the program on the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPUs that the program may use (affinity and cpuset); none means all.
    pub cpus: Option<Ids>,
    /// Nodes whose memory it may use; none means all.
    pub nodes: Option<Ids>,
    /// CPU time per time that a control group grants, in CPUs.
    pub quota: Option<f64>,
    /// Bytes of memory that a control group grants.
    pub memory_bytes: Option<u64>,
}

/// The distance of a node to itself.
const LOCAL: u32 = 10;
/// The distance of two nodes of which nothing is known.
const REMOTE: u32 = 20;
/// More CPUs than any machine has.
const CPUS_MAX: usize = 8192;
/// More nodes than any machine has.
const NODES_MAX: usize = 1024;

impl Machine {
    /// Numbers of all CPUs that are switched on.
    #[must_use]
    pub fn cpu_ids(&self) -> Ids {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// CPUs that are switched on and may be used.
    #[must_use]
    pub fn usable_cpus(&self) -> Ids {
        let all = self.cpu_ids();
        self.limits.cpus.as_ref().map_or_else(|| all.clone(), |allowed| all.and(allowed))
    }

    /// The CPU with this number, if it is switched on.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<Cpu> {
        let index = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
        self.cpus.get(index).copied()
    }

    /// The node with this number.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Whether the node has memory that may be used.
    #[must_use]
    pub fn has_usable_memory(&self, node: u32) -> bool {
        let allowed = self.limits.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        allowed && self.node(node).is_some_and(|node| node.bytes > 0)
    }

    /// The distance of two nodes: 10 is local; unknown ones count as 20.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let index = self.nodes.iter().position(|node| node.id == to);
        let known = self
            .node(from)
            .and_then(|node| node.distances.get(index?))
            .copied()
            .filter(|distance| *distance > 0);
        known.unwrap_or(if from == to { LOCAL } else { REMOTE })
    }

    /// The node with usable memory that is nearest to `node`, the smaller number first; `None` if
    /// no node tells any memory.
    #[must_use]
    pub fn nearest_memory(&self, node: u32) -> Option<u32> {
        let with_memory = self.nodes.iter().filter(|other| self.has_usable_memory(other.id));
        with_memory.map(|other| other.id).min_by_key(|other| (self.distance(node, *other), *other))
    }

    /// Whether memory lies in more than one place, or is not where the CPUs are.
    #[must_use]
    pub fn is_numa(&self) -> bool {
        self.nodes.len() > 1
    }

    /// CPUs that share a core with `cpu`, itself included, ascending.
    #[must_use]
    pub fn siblings(&self, cpu: Cpu) -> Ids {
        self.cpus.iter().filter(|other| other.core == cpu.core).map(|other| other.id).collect()
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cpus.iter().map(|cpu| cpu.core).collect::<Ids>().len()
    }

    /// Numbers of the packages.
    #[must_use]
    pub fn packages(&self) -> Ids {
        self.cpus.iter().map(|cpu| cpu.package).collect()
    }

    /// Network cards whose node is known.
    pub fn cards(&self) -> impl Iterator<Item = (&Device, u32)> {
        let cards = self.devices.iter().filter(|device| device.kind == DeviceKind::Network);
        cards.filter_map(|device| Some((device, device.node?)))
    }

    /// The machine brought into order: CPUs, nodes and caches sorted, every CPU in the set of its
    /// node, a node where there was none.
    ///
    /// # Errors
    /// In words, when the parts do not fit together.
    pub fn check(mut self) -> Result<Machine, String> {
        if self.cpus.is_empty() {
            return Err("a machine has at least one CPU".to_owned());
        }
        if self.cpus.len() > CPUS_MAX || self.nodes.len() > NODES_MAX {
            return Err(format!("more than {CPUS_MAX} CPUs or {NODES_MAX} nodes"));
        }
        self.cpus.sort_by_key(|cpu| cpu.id);
        if let Some(pair) = self.cpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(format!("CPU {} is there twice", pair[0].id));
        }
        if self.nodes.is_empty() {
            let ids: Ids = self.cpus.iter().map(|cpu| cpu.node).collect();
            self.nodes = ids.iter().map(|id| Node { id, ..Node::default() }).collect();
        }
        let order: Vec<u32> = self.nodes.iter().map(|node| node.id).collect();
        let mut sorted: Vec<usize> = (0..order.len()).collect();
        sorted.sort_by_key(|index| order[*index]);
        if let Some(pair) = sorted.windows(2).find(|pair| order[pair[0]] == order[pair[1]]) {
            return Err(format!("node {} is there twice", order[pair[0]]));
        }
        for node in &mut self.nodes {
            if !node.distances.is_empty() && node.distances.len() != order.len() {
                return Err(format!(
                    "node {} has {} distances, but there are {} nodes",
                    node.id,
                    node.distances.len(),
                    order.len()
                ));
            }
            if !node.distances.is_empty() {
                node.distances = sorted.iter().map(|index| node.distances[*index]).collect();
            }
            node.cpus = Ids::new();
        }
        self.nodes.sort_by_key(|node| node.id);
        for cpu in &self.cpus {
            let Some(node) = self.nodes.iter_mut().find(|node| node.id == cpu.node) else {
                return Err(format!("CPU {} is on node {}, which is missing", cpu.id, cpu.node));
            };
            node.cpus.insert(cpu.id);
        }
        self.caches.sort_by_key(|cache| (cache.level, cache.cpus.first()));
        self.devices
            .sort_by(|a, b| (a.kind, &a.address, &a.name).cmp(&(b.kind, &b.address, &b.name)));
        let ids: Ids = order.iter().copied().collect();
        for device in &mut self.devices {
            if device.node.is_some_and(|node| !ids.contains(node)) {
                return Err(format!("device {} is on a node that is missing", device.name));
            }
        }
        if self.usable_cpus().is_empty() {
            return Err("none of its CPUs may be used".to_owned());
        }
        Ok(self)
    }
}
