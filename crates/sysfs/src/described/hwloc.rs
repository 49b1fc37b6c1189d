//! XML of hwloc, versions 1 and 2 (`doc/` and `hwloc2.dtd` of hwloc): objects with sets of CPUs, and kinds of CPUs.

use crate::files;
use countersteer_model::cpuset::{CpuSet, MAX_CPU};
use countersteer_model::units::CpuId;
use roxmltree::{Document, Node, ParsingOptions};

use super::{Described, DescribedCache, DescribedCpu};

pub(super) fn detects(text: &str) -> bool {
    text.trim_start().starts_with('<') && text.contains("<topology") && text.contains("<object")
}

pub(super) fn read(text: &str) -> Result<Described, String> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(|e| e.to_string())?;
    let mut described = Described::default();
    let mut objects = document
        .descendants()
        .filter(|node| node.has_tag_name("object"));
    for object in objects.clone().filter(|object| kind(object) == "PU") {
        let number = number(&object, "os_index").and_then(|n| u32::try_from(n).ok());
        let number = number.filter(|number| *number <= MAX_CPU);
        let number = number.ok_or_else(|| at(&object, "this PU has no os_index of a CPU"))?;
        let alone = CpuSet::from_iter([CpuId(number)]);
        let cpu = DescribedCpu {
            core: alone,
            ..DescribedCpu::default()
        };
        described.cpus.insert(number, cpu);
    }
    objects.try_for_each(|object| described.see(&object))?;
    for element in document.root_element().children().filter(Node::is_element) {
        match element.tag_name().name() {
            "object" => {}
            "cpukind" => described.see_kind(&element)?,
            "info" => drop(described.not_kept.insert(info(&element).0.into())),
            name => drop(described.not_kept.insert(name.into())),
        }
    }
    described.settle_parts();
    Ok(described)
}

fn kind<'a>(object: &Node<'a, '_>) -> &'a str {
    object.attribute("type").unwrap_or_default()
}

fn number(object: &Node<'_, '_>, attribute: &str) -> Option<u64> {
    object.attribute(attribute)?.parse().ok()
}

/// Returns an error with the line of an element.
fn at(object: &Node<'_, '_>, why: &str) -> String {
    let line = object.document().text_pos_at(object.range().start).row;
    format!("line {line}: {why}")
}

fn info<'a>(element: &Node<'a, '_>) -> (&'a str, &'a str) {
    let text = |name| element.attribute(name).unwrap_or_default();
    (text("name"), text("value"))
}

/// Returns the infos of an element.
fn infos<'a>(element: &Node<'a, 'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let own = element
        .children()
        .filter(|child| child.has_tag_name("info"));
    own.map(|child| info(&child))
}

/// Parses hexadecimal words of 32 bits, the highest first; words of zero may be empty.
fn set(element: &Node<'_, '_>) -> Result<CpuSet, String> {
    let text = element.attribute("cpuset").unwrap_or_default();
    let words: Vec<&str> = text
        .split(',')
        .map(|word| word.trim_start_matches("0x"))
        .collect();
    let words: Vec<&str> = words
        .iter()
        .map(|word| if word.is_empty() { "0" } else { word })
        .collect();
    files::mask(&words.join(",")).ok_or_else(|| at(element, "its cpuset is no set of CPUs"))
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

impl Described {
    fn see(&mut self, object: &Node<'_, '_>) -> Result<(), String> {
        match kind(object) {
            "Machine" => self.see_processor(object),
            "Package" | "Socket" => {
                self.see_processor(object);
                // Some machines number no packages; their positions in the file tell them apart.
                let package = number(object, "os_index").unwrap_or(object.id().get().into()) as u32;
                self.each(&set(object)?, |cpu| cpu.package = package);
            }
            "Core" => {
                let own = set(object)?;
                let online = own.iter().filter(|cpu| self.cpus.contains_key(&cpu.0));
                let core: CpuSet = online.collect();
                self.each(&own, |cpu| cpu.core = core.clone());
            }
            "NUMANode" | "Node" => self.see_node(object)?,
            "PU" => {}
            "Cache" => self.see_cache(object)?,
            kind if kind.starts_with('L') && kind.ends_with("Cache") => self.see_cache(object)?,
            kind => drop(self.not_kept.insert(kind.into())),
        }
        Ok(())
    }

    /// Reads the processor's name and numbers; the first object that has them counts.
    fn see_processor(&mut self, object: &Node<'_, '_>) {
        for (name, value) in infos(object) {
            let key = match name {
                "CPUVendor" => "vendor_id",
                "CPUFamilyNumber" => "cpu family",
                "CPUModelNumber" => "model",
                "CPUModel" => "model name",
                "CPUImplementer" => "CPU implementer",
                "CPUPart" => "CPU part",
                "CPUStepping" => "stepping",
                _ => {
                    self.not_kept.insert(name.into());
                    continue;
                }
            };
            if self.cpuinfo.iter().all(|(known, _)| *known != key) {
                self.cpuinfo.push((key, value.to_owned()));
            }
        }
    }

    /// Gives the package's part to all CPUs of a machine with one kind of them. The package has the part of its first CPU.
    fn settle_parts(&mut self) {
        let take = |fields: &mut Vec<(&str, String)>, key| {
            let at = fields.iter().position(|(known, _)| *known == key)?;
            hex(&fields.remove(at).1)
        };
        let part =
            take(&mut self.cpuinfo, "CPU implementer").zip(take(&mut self.cpuinfo, "CPU part"));
        let mut kinds: Vec<_> = self
            .cpus
            .values()
            .map(|cpu| (cpu.part, cpu.capacity))
            .collect();
        kinds.dedup();
        if let ([(None, _)], Some(part)) = (&kinds[..], part) {
            self.cpus.values_mut().for_each(|cpu| cpu.part = Some(part));
        }
    }

    fn see_node(&mut self, object: &Node<'_, '_>) -> Result<(), String> {
        let cpus = set(object)?;
        let node = number(object, "os_index").unwrap_or(0) as u32;
        // Nodes without CPUs of their own lie beside those that have them.
        let taken = |other: &CpuSet| other.intersects(&cpus);
        if cpus.is_empty() || self.nodes.values().any(taken) {
            self.not_kept.insert(format!("memory node {node}"));
        } else {
            self.nodes.insert(node, cpus);
        }
        Ok(())
    }

    fn see_cache(&mut self, object: &Node<'_, '_>) -> Result<(), String> {
        let known = |attribute| number(object, attribute).filter(|n| *n > 0);
        let level = known("depth").filter(|level| *level < 16);
        let level = level.ok_or_else(|| at(object, "this cache has no depth"))?;
        self.caches.push(DescribedCache {
            level: level as u32,
            kind: match object.attribute("cache_type") {
                Some("1") => "Data",
                Some("2") => "Instruction",
                _ => "Unified",
            },
            kib: known("cache_size")
                .map(|bytes| bytes / 1024)
                .filter(|kib| *kib > 0),
            // Full associativity is -1, and unknown associativity 0.
            ways: known("cache_associativity"),
            line_bytes: known("cache_linesize"),
            cpus: set(object)?,
        });
        Ok(())
    }

    /// Reads a kind of CPUs: clocks, capacity, part, and Intel's names.
    fn see_kind(&mut self, element: &Node<'_, '_>) -> Result<(), String> {
        let own = set(element)?;
        let of_all = self
            .cpuinfo
            .iter()
            .find(|(key, _)| *key == "CPU implementer");
        let implementer = of_all.and_then(|(_, value)| hex(value));
        for (name, value) in infos(element) {
            let mhz = || value.parse::<f64>().ok().filter(|mhz| *mhz > 0.0);
            match name {
                "FrequencyMaxMHz" => self.each(&own, |cpu| cpu.max_mhz = mhz()),
                "FrequencyBaseMHz" => self.each(&own, |cpu| cpu.base_mhz = mhz()),
                "LinuxCapacity" => self.each(&own, |cpu| cpu.capacity = value.parse().ok()),
                "CPUPart" => {
                    let part = implementer.zip(hex(value));
                    self.each(&own, |cpu| cpu.part = part);
                }
                "CoreType" => {
                    let pmu = match value {
                        "IntelCore" => Some("cpu_core"),
                        "IntelAtom" => Some("cpu_atom"),
                        _ => None,
                    };
                    self.each(&own, |cpu| cpu.pmu = pmu);
                }
                _ => drop(self.not_kept.insert(name.into())),
            }
        }
        if element.has_attribute("forced_efficiency") {
            self.not_kept.insert("forced_efficiency".into());
        }
        Ok(())
    }

    fn each(&mut self, own: &CpuSet, mut give: impl FnMut(&mut DescribedCpu)) {
        for cpu in own.iter() {
            if let Some(cpu) = self.cpus.get_mut(&cpu.0) {
                give(cpu);
            }
        }
    }
}
