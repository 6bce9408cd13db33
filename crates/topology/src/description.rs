//! A machine written down as text: TOML, by hand or by `lepus topology --toml`.
//!
//! ```toml
//! name = "small"
//! [[cores]]                 # cores of one package on one node
//! package = 0
//! node = 0
//! cpus = ["0,2", "1,3"]     # one entry per core: its sibling threads
//! [[node]]
//! id = 0
//! memory = "2GiB"
//! distances = [10]
//! ```

use crate::ids::Ids;
use crate::machine::{Cache, Cpu, Device, DeviceKind, Interrupt, Limits, Machine, Node};
use toml::de::{DeArray, DeTable, DeValue};

/// Entries in a list of a description, at most.
const ENTRIES_MAX: usize = 16_384;

/// Reads a machine from its description.
///
/// # Errors
/// In words, with the key that is wrong.
pub fn read(text: &str) -> Result<Machine, String> {
    let table = DeTable::parse(text)
        .map_err(|error| format!("not valid TOML: {}", error.message().replace('\n', "; ")))?;
    let top = Table { name: String::new(), table: table.get_ref() };
    top.only(&["name", "offline", "cores", "node", "cache", "device", "limits"])?;
    let mut machine = Machine {
        name: top.text("name")?.unwrap_or_default(),
        offline: top.ids("offline")?.unwrap_or_default(),
        ..Machine::default()
    };
    let mut core = 0;
    for cores in top.tables("cores")? {
        read_cores(&cores, &mut core, &mut machine.cpus)?;
    }
    for node in top.tables("node")? {
        machine.nodes.push(read_node(&node)?);
    }
    for cache in top.tables("cache")? {
        read_caches(&cache, &mut machine.caches)?;
    }
    for device in top.tables("device")? {
        machine.devices.push(read_device(&device)?);
    }
    if let Some(limits) = top.table("limits")? {
        limits.only(&["cpus", "nodes", "quota", "memory"])?;
        machine.limits = Limits {
            cpus: limits.ids("cpus")?,
            nodes: limits.ids("nodes")?,
            quota: limits.quota("quota")?,
            memory_bytes: limits.bytes("memory")?,
        };
    }
    machine.check()
}

fn read_cores(table: &Table<'_>, core: &mut u32, cpus: &mut Vec<Cpu>) -> Result<(), String> {
    table.only(&["package", "node", "cpus"])?;
    let package = table.number("package")?.unwrap_or(0);
    let node = table.number("node")?.unwrap_or(0);
    for siblings in table.id_lists("cpus")? {
        cpus.extend(siblings.iter().map(|id| Cpu { id, core: *core, package, node }));
        *core += 1;
        if cpus.len() > ENTRIES_MAX {
            return Err(format!("more than {ENTRIES_MAX} CPUs"));
        }
    }
    Ok(())
}

fn read_node(table: &Table<'_>) -> Result<Node, String> {
    table.only(&["id", "memory", "free", "distances"])?;
    let id = table.number("id")?.ok_or_else(|| table.missing("id"))?;
    Ok(Node {
        id,
        cpus: Ids::new(),
        bytes: table.bytes("memory")?.unwrap_or(0),
        free_bytes: table.bytes("free")?,
        distances: table.numbers("distances")?,
    })
}

fn read_caches(table: &Table<'_>, caches: &mut Vec<Cache>) -> Result<(), String> {
    table.only(&["level", "size", "cpus"])?;
    let level = table.number("level")?.ok_or_else(|| table.missing("level"))?;
    let bytes = table.bytes("size")?.unwrap_or(0);
    let lists = table.id_lists("cpus")?;
    caches.extend(lists.into_iter().map(|cpus| Cache { level, bytes, cpus }));
    Ok(())
}

fn read_device(table: &Table<'_>) -> Result<Device, String> {
    table.only(&["kind", "name", "address", "model", "node", "interrupts"])?;
    let kind = match table.text("kind")?.as_deref() {
        Some("network") => DeviceKind::Network,
        Some("disk") => DeviceKind::Disk,
        Some("other") | None => DeviceKind::Other,
        Some(other) => {
            return Err(format!("{}: `{other}` is not network, disk or other", table.key("kind")));
        }
    };
    let mut interrupts = Vec::new();
    for interrupt in table.tables("interrupts")? {
        interrupt.only(&["number", "cpus"])?;
        let number = interrupt.number("number")?.ok_or_else(|| interrupt.missing("number"))?;
        interrupts.push(Interrupt { number, cpus: interrupt.ids("cpus")?.unwrap_or_default() });
    }
    Ok(Device {
        kind,
        name: table.text("name")?.unwrap_or_default(),
        address: table.text("address")?.unwrap_or_default(),
        model: table.text("model")?.unwrap_or_default(),
        node: table.number("node")?,
        interrupts,
    })
}

/// A table of the description with its name, for messages.
struct Table<'a> {
    name: String,
    table: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    fn key(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn missing(&self, key: &str) -> String {
        format!("{} is missing", self.key(key))
    }

    fn only(&self, known: &[&str]) -> Result<(), String> {
        let unknown = self.table.iter().find(|(key, _)| !known.contains(&key.get_ref().as_ref()));
        match unknown {
            Some((key, _)) => Err(format!(
                "{} is not known; there are {}",
                self.key(key.get_ref()),
                known.join(", ")
            )),
            None => Ok(()),
        }
    }

    fn value(&self, key: &str) -> Option<&'a DeValue<'a>> {
        self.table.get(key).map(|value| value.get_ref())
    }

    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text.to_string())),
            Some(_) => Err(format!("{}: a text is expected", self.key(key))),
        }
    }

    fn number(&self, key: &str) -> Result<Option<u32>, String> {
        self.value(key).map(|value| number(value, &self.key(key))).transpose()
    }

    fn numbers(&self, key: &str) -> Result<Vec<u32>, String> {
        let name = self.key(key);
        self.list(key)?.into_iter().map(|value| number(value, &name)).collect()
    }

    fn quota(&self, key: &str) -> Result<Option<f64>, String> {
        let wrong = || format!("{}: a number of CPUs above 0 is expected", self.key(key));
        let quota = match self.value(key) {
            None => return Ok(None),
            Some(DeValue::Float(number)) => number.as_str().replace('_', "").parse().ok(),
            Some(value) => number(value, &self.key(key)).ok().map(f64::from),
        };
        quota.filter(|quota: &f64| quota.is_finite() && *quota > 0.0).ok_or_else(wrong).map(Some)
    }

    fn ids(&self, key: &str) -> Result<Option<Ids>, String> {
        let text = self.text(key)?;
        text.map(|text| text.parse().map_err(|error| format!("{}: {error}", self.key(key))))
            .transpose()
    }

    fn id_lists(&self, key: &str) -> Result<Vec<Ids>, String> {
        let name = self.key(key);
        let read = |value: &DeValue<'_>| match value {
            DeValue::String(text) => text.parse().map_err(|error| format!("{name}: {error}")),
            _ => Err(format!("{name}: a list of texts such as [\"0,2\", \"1,3\"] is expected")),
        };
        self.list(key)?.into_iter().map(read).collect()
    }

    fn bytes(&self, key: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || format!("{}: a size such as 2048 or \"2GiB\" is expected", self.key(key));
        match value {
            DeValue::String(text) => size(text).map(Some).ok_or_else(wrong),
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix())
                .map(Some)
                .map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }

    fn list(&self, key: &str) -> Result<Vec<&'a DeValue<'a>>, String> {
        let list: &DeArray<'_> = match self.value(key) {
            None => return Ok(Vec::new()),
            Some(DeValue::Array(list)) => list,
            Some(_) => return Err(format!("{}: a list is expected", self.key(key))),
        };
        if list.len() > ENTRIES_MAX {
            return Err(format!("{}: more than {ENTRIES_MAX} entries", self.key(key)));
        }
        Ok(list.iter().map(|value| value.get_ref()).collect())
    }

    fn tables(&self, key: &str) -> Result<Vec<Table<'a>>, String> {
        let name = self.key(key);
        let read = |value: &'a DeValue<'a>| match value {
            DeValue::Table(table) => Ok(Table { name: name.clone(), table }),
            _ => Err(format!("{name}: tables [[{name}]] are expected")),
        };
        self.list(key)?.into_iter().map(read).collect()
    }

    fn table(&self, key: &str) -> Result<Option<Table<'a>>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(DeValue::Table(table)) => Ok(Some(Table { name: self.key(key), table })),
            Some(_) => Err(format!("{}: a table is expected", self.key(key))),
        }
    }
}

fn number(value: &DeValue<'_>, name: &str) -> Result<u32, String> {
    let number = match value {
        DeValue::Integer(integer) => u32::from_str_radix(integer.as_str(), integer.radix()).ok(),
        _ => None,
    };
    let number = number.filter(|number| *number <= crate::ids::ID_MAX * 16);
    number.ok_or_else(|| format!("{name}: a whole number is expected"))
}

/// `2GiB`, `512 MiB`, `4096`.
fn size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The machine as a description that [`read`] takes.
#[must_use]
pub fn write(machine: &Machine) -> String {
    let mut out = format!("name = {}\n", quote(&machine.name));
    if !machine.offline.is_empty() {
        out.push_str(&format!("offline = \"{}\"\n", machine.offline));
    }
    write_limits(&machine.limits, &mut out);
    write_cores(machine, &mut out);
    for node in &machine.nodes {
        out.push_str(&format!("\n[[node]]\nid = {}\nmemory = {}\n", node.id, node.bytes));
        if let Some(free) = node.free_bytes {
            out.push_str(&format!("free = {free}\n"));
        }
        if !node.distances.is_empty() {
            out.push_str(&format!("distances = {:?}\n", node.distances));
        }
    }
    let mut caches = machine.caches.as_slice();
    while let Some(first) = caches.first() {
        let same = |cache: &&Cache| (cache.level, cache.bytes) == (first.level, first.bytes);
        let count = caches.iter().take_while(same).count();
        let lists: Vec<String> =
            caches[..count].iter().map(|cache| format!("\"{}\"", cache.cpus)).collect();
        out.push_str(&format!(
            "\n[[cache]]\nlevel = {}\nsize = {}\ncpus = [{}]\n",
            first.level,
            first.bytes,
            lists.join(", ")
        ));
        caches = &caches[count..];
    }
    for device in &machine.devices {
        write_device(device, &mut out);
    }
    out
}

fn write_limits(limits: &Limits, out: &mut String) {
    if *limits == Limits::default() {
        return;
    }
    out.push_str("\n[limits]\n");
    if let Some(cpus) = &limits.cpus {
        out.push_str(&format!("cpus = \"{cpus}\"\n"));
    }
    if let Some(nodes) = &limits.nodes {
        out.push_str(&format!("nodes = \"{nodes}\"\n"));
    }
    if let Some(quota) = limits.quota {
        out.push_str(&format!("quota = {quota:?}\n"));
    }
    if let Some(bytes) = limits.memory_bytes {
        out.push_str(&format!("memory = {bytes}\n"));
    }
}

fn write_cores(machine: &Machine, out: &mut String) {
    let mut groups: Vec<(u32, u32)> =
        machine.cpus.iter().map(|cpu| (cpu.package, cpu.node)).collect();
    groups.sort_unstable();
    groups.dedup();
    for (package, node) in groups {
        let own = machine.cpus.iter().filter(|cpu| (cpu.package, cpu.node) == (package, node));
        let cores: Ids = own.clone().map(|cpu| cpu.core).collect();
        let lists: Vec<String> = cores
            .iter()
            .map(|core| {
                let siblings = own.clone().filter(|cpu| cpu.core == core).map(|cpu| cpu.id);
                format!("\"{}\"", siblings.collect::<Ids>())
            })
            .collect();
        out.push_str(&format!(
            "\n[[cores]]\npackage = {package}\nnode = {node}\ncpus = [{}]\n",
            lists.join(", ")
        ));
    }
}

fn write_device(device: &Device, out: &mut String) {
    let kind = match device.kind {
        DeviceKind::Network => "network",
        DeviceKind::Disk => "disk",
        DeviceKind::Other => "other",
    };
    out.push_str(&format!("\n[[device]]\nkind = \"{kind}\"\n"));
    let texts = [("name", &device.name), ("address", &device.address), ("model", &device.model)];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        out.push_str(&format!("{key} = {}\n", quote(text)));
    }
    if let Some(node) = device.node {
        out.push_str(&format!("node = {node}\n"));
    }
    let interrupts: Vec<String> = device
        .interrupts
        .iter()
        .map(|one| format!("{{ number = {}, cpus = \"{}\" }}", one.number, one.cpus))
        .collect();
    if !interrupts.is_empty() {
        out.push_str(&format!("interrupts = [{}]\n", interrupts.join(", ")));
    }
}

/// A TOML basic string.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
