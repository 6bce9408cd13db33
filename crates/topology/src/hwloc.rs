//! Machines as hwloc tells them: the running one, one saved by `lstopo` as XML, or a synthetic one
//! such as `pack:2 numa:2 core:6 pu:1`.

use crate::ids::{ID_MAX, Ids};
use crate::machine::{Cache, Cpu, Device, DeviceKind, Limits, Machine, Node};
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::{OSDeviceType, ObjectType};
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};
use std::fmt::Display;

/// The largest saved machine that is read, in bytes.
const XML_BYTES_MAX: usize = 64 << 20;

/// The running machine as hwloc reads it, without what only the kernel tells.
///
/// # Errors
/// When hwloc cannot read the machine.
pub(crate) fn running() -> Result<Machine, String> {
    from_builder(Topology::builder())
        .map_err(|error| format!("hwloc cannot read this machine: {error}"))
}

/// A machine saved by `lstopo FILE.xml`.
///
/// # Errors
/// When it is no such text.
pub(crate) fn from_xml(xml: &str) -> Result<Machine, String> {
    let wrong = |error: &dyn Display| format!("not a machine as `lstopo` saves it: {error}");
    // hwloc itself takes any document for an empty machine.
    if xml.len() > XML_BYTES_MAX || !xml.contains("<topology") || !xml.contains("</topology>") {
        return Err(wrong(&"no <topology> element, or too long"));
    }
    let builder = Topology::builder().from_xml(xml).map_err(|error| wrong(&error))?;
    from_builder(builder).map_err(|error| wrong(&error))
}

/// A machine made up in hwloc's synthetic form.
///
/// # Errors
/// When the text is not of that form.
pub(crate) fn from_synthetic(text: &str) -> Result<Machine, String> {
    let wrong = |error: &dyn Display| {
        format!("`{text}` is no synthetic machine such as `pack:2 numa:2 core:6 pu:1`: {error}")
    };
    let builder = Topology::builder().from_synthetic(text).map_err(|error| wrong(&error))?;
    let machine = from_builder(builder).map_err(|error| wrong(&error))?;
    Ok(Machine { name: text.to_owned(), ..machine })
}

fn from_builder(builder: TopologyBuilder) -> Result<Machine, String> {
    let text = |error: &dyn Display| error.to_string();
    let builder = builder.with_flags(BuildFlags::INCLUDE_DISALLOWED).map_err(|e| text(&e))?;
    let builder = builder.with_io_type_filter(TypeFilter::KeepImportant).map_err(|e| text(&e))?;
    machine(&builder.build().map_err(|e| text(&e))?)
}

fn machine(topology: &Topology) -> Result<Machine, String> {
    let online = ids(topology.cpuset().iter_set().map(usize::from));
    let complete = ids(topology.complete_cpuset().iter_set().map(usize::from));
    let allowed = ids(topology.allowed_cpuset().iter_set().map(usize::from));
    let allowed_nodes = ids(topology.allowed_nodeset().iter_set().map(usize::from));
    let mut nodes = nodes(topology);
    let owners = owners(&nodes);
    let mut machine = Machine {
        name: info(topology.root_object(), "HostName"),
        offline: complete.without(&online),
        limits: Limits {
            cpus: (!online.is_within(&allowed)).then_some(allowed),
            nodes: nodes
                .iter()
                .any(|node| !allowed_nodes.contains(node.id))
                .then_some(allowed_nodes),
            ..Limits::default()
        },
        ..Machine::default()
    };
    for unit in topology.objects_with_type(ObjectType::PU) {
        let Some(id) = number(unit.os_index()) else { continue };
        let above = |kind| unit.first_ancestor_with_type(kind);
        let core =
            above(ObjectType::Core).map_or(unit.logical_index(), |core| core.logical_index());
        let package = above(ObjectType::Package);
        let package = package.and_then(|package| number(package.os_index()));
        let node = owners.iter().find(|(_, cpus)| cpus.contains(id)).map(|(node, _)| *node);
        machine.cpus.push(Cpu {
            id,
            core: number(Some(core)).unwrap_or(id),
            package: package.unwrap_or(0),
            node: node.unwrap_or(nodes.first().map_or(0, |node| node.id)),
        });
    }
    distances(topology, &mut nodes);
    machine.nodes = nodes;
    machine.caches = caches(topology);
    machine.devices = devices(topology);
    machine.check()
}

/// Numbers that are in range; an infinite set ends at the range's end.
fn ids(numbers: impl Iterator<Item = usize>) -> Ids {
    numbers.map_while(|number| u32::try_from(number).ok().filter(|id| *id <= ID_MAX)).collect()
}

fn number(index: Option<usize>) -> Option<u32> {
    index.and_then(|index| u32::try_from(index).ok()).filter(|id| *id <= ID_MAX)
}

fn info(object: &TopologyObject, key: &str) -> String {
    object.info(key).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

fn nodes(topology: &Topology) -> Vec<Node> {
    let mut nodes = Vec::new();
    for object in topology.objects_with_type(ObjectType::NUMANode) {
        let Some(id) = number(object.os_index()) else { continue };
        let bytes = match object.attributes() {
            Some(ObjectAttributes::NUMANode(numa)) => numa.local_memory().map_or(0, |n| n.get()),
            _ => 0,
        };
        let cpus = object.cpuset().map(|set| ids(set.iter_set().map(usize::from)));
        let cpus = cpus.unwrap_or_default();
        nodes.push(Node { id, cpus, bytes, ..Node::default() });
    }
    nodes
}

/// Nodes by the order in which they claim CPUs: the closest fit first, and of several that fit
/// alike the one with the smallest number. A node that comes too late has memory alone.
fn owners(nodes: &[Node]) -> Vec<(u32, Ids)> {
    let mut owners: Vec<(u32, Ids)> =
        nodes.iter().map(|node| (node.id, node.cpus.clone())).collect();
    owners.sort_by_key(|(id, cpus)| (cpus.len(), *id));
    owners
}

/// The matrix of the nodes' latencies, where there is one.
fn distances(topology: &Topology, nodes: &mut [Node]) {
    let kind = Some(DistancesKind::MEANS_LATENCY);
    let Ok(matrices) = topology.distances_with_type(kind, ObjectType::NUMANode) else { return };
    let Some(matrix) = matrices.first() else { return };
    let known: Vec<Option<u32>> = matrix
        .objects()
        .map(|object| object.and_then(|object| number(object.os_index())))
        .collect();
    let order: Vec<u32> = nodes.iter().map(|node| node.id).collect();
    for node in nodes {
        let mut row = vec![0; order.len()];
        for ((from, to), distance) in matrix.enumerate_distances() {
            let to = known.get(to).copied().flatten();
            let column = order.iter().position(|id| Some(*id) == to);
            if known.get(from).copied().flatten() == Some(node.id)
                && let Some(slot) = column.and_then(|column| row.get_mut(column))
            {
                *slot = u32::try_from(distance).unwrap_or(u32::MAX);
            }
        }
        if row.iter().all(|distance| *distance > 0) {
            node.distances = row;
        }
    }
}

fn caches(topology: &Topology) -> Vec<Cache> {
    let mut caches = Vec::new();
    for object in topology.normal_objects().filter(|o| o.object_type().is_cpu_data_cache()) {
        if let Some(ObjectAttributes::Cache(cache)) = object.attributes() {
            let cpus = object.cpuset().map(|set| ids(set.iter_set().map(usize::from)));
            caches.push(Cache {
                level: number(Some(cache.depth())).unwrap_or(0),
                bytes: cache.size().map_or(0, |size| size.get()),
                cpus: cpus.unwrap_or_default(),
            });
        }
    }
    caches
}

fn devices(topology: &Topology) -> Vec<Device> {
    let mut devices = Vec::new();
    for object in topology.pci_devices() {
        let Some(ObjectAttributes::PCIDevice(pci)) = object.attributes() else { continue };
        let mut kind = match pci.class_id() >> 8 {
            0x01 => DeviceKind::Disk,
            0x02 => DeviceKind::Network,
            _ => DeviceKind::Other,
        };
        let mut names = Vec::new();
        for child in object.io_children() {
            if let Some(ObjectAttributes::OSDevice(device)) = child.attributes() {
                match device.device_type() {
                    OSDeviceType::Network => kind = DeviceKind::Network,
                    OSDeviceType::Storage => kind = DeviceKind::Disk,
                    _ => {}
                }
            }
            names.extend(child.name().map(|name| name.to_string_lossy().into_owned()));
        }
        if kind == DeviceKind::Other && names.is_empty() {
            continue;
        }
        // Attached to the whole machine means that the node is not known.
        let near = object.first_non_io_ancestor().and_then(TopologyObject::nodeset);
        let near = near.map(|set| ids(set.iter_set().map(usize::from))).unwrap_or_default();
        devices.push(Device {
            kind,
            name: names.join(","),
            address: format!(
                "{:04x}:{:02x}:{:02x}.{:x}",
                pci.domain(),
                pci.bus_id(),
                pci.bus_device(),
                pci.function()
            ),
            model: format!("{:04x}:{:04x}", pci.vendor_id(), pci.device_id()),
            node: near.first().filter(|_| near.len() == 1),
            interrupts: Vec::new(),
        });
    }
    devices
}
