//! The report as a picture: packages, nodes, cores and CPUs, with shards on them.

use super::{Report, device_name, show_bytes};
use crate::ids::Ids;
use crate::machine::{DeviceKind, Machine, Node};
use crate::planner::{Binding, Plan};
use lepus_svg::Svg;

const CPU_WIDTH: usize = 56;
const CPU_HEIGHT: usize = 34;
const GAP: usize = 8;
const CORES_PER_ROW: usize = 6;
const MARGIN: usize = 20;
const LINE: usize = 18;
/// CPUs of one core in a box, side by side, at most.
const THREADS_SHOWN: usize = 8;
/// Nodes side by side.
const NODES_PER_ROW: usize = 4;

const STYLE: &str = "<style>
text { font-family: sans-serif; font-size: 13px; fill: #222 }
.title { font-size: 18px; font-weight: bold }
.head { font-weight: bold }
.small { font-size: 11px; fill: #555 }
.mid { text-anchor: middle }
</style>";

/// The report as an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    let machine = &report.machine;
    let threads = machine.cpus.iter().map(|cpu| machine.siblings(*cpu).len()).max().unwrap_or(1);
    let threads = threads.min(THREADS_SHOWN);
    let core_width = threads * CPU_WIDTH + 2 * GAP;
    let boxes: Vec<NodeBox<'_>> =
        machine.nodes.iter().map(|node| NodeBox::new(machine, node)).collect();
    let columns = boxes.iter().map(|b| b.columns).max().unwrap_or(1);
    let node_width = (columns * (core_width + GAP) + 2 * GAP).max(300);
    let per_row = boxes.len().clamp(1, NODES_PER_ROW);
    let width = 2 * MARGIN + per_row * (node_width + 2 * GAP);
    let height = |row: &[NodeBox<'_>]| row.iter().map(NodeBox::height).max().unwrap_or(0);
    let nodes: usize = boxes.chunks(per_row).map(|row| height(row) + 2 * GAP).sum();
    let lines = lines(report);
    let whole = MARGIN + 32 + nodes + LINE * (lines.len() + 1) + MARGIN;
    let root = format!("width=\"{width}\" height=\"{whole}\"");
    let mut svg = Svg::new((width as f64, whole as f64), &root);
    svg.raw(STYLE);
    let mut y = MARGIN;
    label(&mut svg, MARGIN, y + 16, "title", &title(machine));
    y += 32;
    for row in boxes.chunks(per_row) {
        let height = height(row);
        for (column, node) in row.iter().enumerate() {
            let x = MARGIN + column * (node_width + 2 * GAP);
            node.draw(report, (x, y), (node_width, height), core_width, &mut svg);
        }
        y += height + 2 * GAP;
    }
    y += LINE;
    for line in lines {
        label(&mut svg, MARGIN, y, "text", &line);
        y += LINE;
    }
    svg.finish()
}

fn title(machine: &Machine) -> String {
    let name = if machine.name.is_empty() { "this machine" } else { &machine.name };
    let memory: u64 = machine.nodes.iter().map(|node| node.bytes).sum();
    format!(
        "{name}: {} packages, {} cores, {} CPUs, {} memory nodes, {}",
        machine.packages().len(),
        machine.cores(),
        machine.cpus.len(),
        machine.nodes.len(),
        show_bytes(memory)
    )
}

/// What is written below the picture.
fn lines(report: &Report) -> Vec<String> {
    let machine = &report.machine;
    let mut lines = Vec::new();
    if machine.nodes.iter().any(|node| !node.distances.is_empty()) && machine.is_numa() {
        let ids: Vec<String> = machine.nodes.iter().map(|node| node.id.to_string()).collect();
        lines.push(format!("distances to nodes {}:", ids.join(", ")));
        for node in &machine.nodes {
            let row: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
            lines.push(format!("from node {}: {}", node.id, row.join(", ")));
        }
    }
    let loose = machine.devices.iter().filter(|device| device.node.is_none());
    let loose: Vec<&str> = loose.map(device_name).collect();
    if !loose.is_empty() {
        lines.push(format!("devices whose node is not known: {}", loose.join(", ")));
    }
    if let Some(plan) = &report.plan {
        lines.push(format!(
            "plan {}: {} shards; listeners on CPUs {}; housekeeping on CPUs {}",
            plan.policy, plan.shards, plan.listeners, plan.housekeeping
        ));
        lines.extend(plan.notes.iter().map(|note| format!("note: {note}")));
    }
    if let Some(standing) = &report.standing {
        let node = standing.log_node.map_or(String::new(), |node| format!(" on node {node}"));
        let disk = if standing.log_disk.is_empty() { "not known" } else { &standing.log_disk };
        lines.push(format!("log: {} (disk {disk}{node})", standing.log_directory));
        lines.extend(standing.warnings.iter().map(|warning| format!("warning: {warning}")));
    }
    lines
}

/// One node as it is drawn: its cores in rows, its devices below.
struct NodeBox<'a> {
    node: &'a Node,
    cores: Vec<Ids>,
    columns: usize,
    caches: Vec<String>,
    devices: Vec<String>,
}

impl<'a> NodeBox<'a> {
    fn new(machine: &Machine, node: &'a Node) -> NodeBox<'a> {
        let cpus = || node.cpus.iter().filter_map(|cpu| machine.cpu(cpu));
        let numbers: Ids = cpus().map(|cpu| cpu.core).collect();
        let core = |core: u32| cpus().filter(|cpu| cpu.core == core).map(|cpu| cpu.id).collect();
        let cores: Vec<Ids> = numbers.iter().map(core).collect();
        let mut caches: Vec<(u32, u64, usize)> = machine
            .caches
            .iter()
            .filter(|cache| !cache.cpus.is_empty() && cache.cpus.is_within(&node.cpus))
            .map(|cache| (cache.level, cache.bytes, cache.cpus.len()))
            .collect();
        caches.sort_unstable();
        let mut texts: Vec<String> = Vec::new();
        for group in caches.chunk_by(|a, b| a == b) {
            let (level, bytes, _) = group[0];
            texts.push(format!("L{level} {} × {}", group.len(), show_bytes(bytes)));
        }
        let devices = machine.devices.iter().filter(|device| device.node == Some(node.id));
        let devices = devices.map(|device| {
            let kind = match device.kind {
                DeviceKind::Network => "network card",
                DeviceKind::Disk => "disk",
                DeviceKind::Other => "device",
            };
            let mut text = format!("{kind} {}", device_name(device));
            if let (Some(first), Some(last)) = (device.interrupts.first(), device.interrupts.last())
            {
                text.push_str(&format!(", interrupts {}–{}", first.number, last.number));
            }
            text
        });
        NodeBox {
            node,
            columns: cores.len().clamp(1, CORES_PER_ROW),
            devices: devices.collect(),
            caches: texts,
            cores,
        }
    }

    fn height(&self) -> usize {
        let rows = self.cores.len().div_ceil(CORES_PER_ROW);
        let texts = usize::from(!self.caches.is_empty()) + self.devices.len();
        2 * LINE + GAP + rows * (CPU_HEIGHT + 2 * GAP + GAP) + texts * LINE + GAP
    }

    fn draw(
        &self,
        report: &Report,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
        core_width: usize,
        out: &mut Svg,
    ) {
        rectangle(out, (x, y), (width, height), "#eef3f8", "#6b8cae");
        let node = self.node;
        label(out, x + GAP, y + LINE, "head", &format!("node {}", node.id));
        let free = node.free_bytes.map_or(String::new(), |b| format!(", {} free", show_bytes(b)));
        let packages: Ids = (node.cpus.iter())
            .filter_map(|cpu| report.machine.cpu(cpu))
            .map(|cpu| cpu.package)
            .collect();
        let package = match packages.len() {
            0 => "no CPUs".to_owned(),
            _ => format!("package {packages}"),
        };
        let text = format!("{package}, {}{free}", show_bytes(node.bytes));
        label(out, x + 70, y + LINE, "text", &text);
        let mut at = y + 2 * LINE;
        for row in self.cores.chunks(CORES_PER_ROW) {
            for (column, core) in row.iter().enumerate() {
                let left = x + GAP + column * (core_width + GAP);
                let size = (core_width, CPU_HEIGHT + 2 * GAP);
                rectangle(out, (left, at), size, "#ffffff", "#b8c4d0");
                for (index, cpu) in core.iter().take(THREADS_SHOWN).enumerate() {
                    draw_cpu(report, cpu, (left + GAP + index * CPU_WIDTH, at + GAP), out);
                }
            }
            at += CPU_HEIGHT + 3 * GAP;
        }
        at += LINE - GAP / 2;
        if !self.caches.is_empty() {
            label(out, x + GAP, at, "small", &self.caches.join(" · "));
            at += LINE;
        }
        for device in &self.devices {
            label(out, x + GAP, at, "text", &format!("▸ {device}"));
            at += LINE;
        }
    }
}

/// One CPU: its number, its shard, and whether others work there.
fn draw_cpu(report: &Report, cpu: u32, (x, y): (usize, usize), out: &mut Svg) {
    let plan = report.plan.as_ref();
    let is_usable = report.machine.usable_cpus().contains(cpu);
    let plan = plan.filter(|plan| plan.binding == Binding::Cpu);
    let shard = plan.and_then(|plan| plan.places.iter().position(|place| place.cpu.id == cpu));
    let keeps = |plan: &Plan| !plan.places.is_empty() && plan.housekeeping.contains(cpu);
    let fill = match (is_usable, shard) {
        (false, _) => "#d9d9d9",
        (true, Some(_)) => "#9bd19b",
        (true, None) if plan.is_some_and(keeps) => "#f3dfa2",
        (true, None) => "#f7f7f7",
    };
    rectangle(out, (x, y), (CPU_WIDTH - 2, CPU_HEIGHT), fill, "#8a8a8a");
    let middle = x + CPU_WIDTH / 2 - 1;
    label(out, middle, y + 14, "mid", &format!("{cpu}"));
    let below = match (is_usable, shard) {
        (false, _) => "kept".to_owned(),
        (true, Some(shard)) => format!("shard {shard}"),
        (true, None) if plan.is_some_and(keeps) => "house".to_owned(),
        (true, None) => String::new(),
    };
    if !below.is_empty() {
        label(out, middle, y + 28, "small mid", &below);
    }
}

fn rectangle(
    out: &mut Svg,
    (x, y): (usize, usize),
    (width, height): (usize, usize),
    fill: &str,
    stroke: &str,
) {
    let look = format!("rx=\"3\" fill=\"{fill}\" stroke=\"{stroke}\"");
    out.rectangle((x as f64, y as f64), (width as f64, height as f64), &look);
}

fn label(out: &mut Svg, x: usize, y: usize, class: &str, text: &str) {
    out.text((x as f64, y as f64), &format!("class=\"{class}\""), text);
}
