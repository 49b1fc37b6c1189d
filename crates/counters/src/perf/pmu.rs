//! PMUs of a machine, as sysfs describes them.
//!
//! Input: a root directory (`/`, or one of a test). Output: every PMU with its type, CPUs, formats and named events. If the
//! content of a file is invalid, only the events that it describes are affected: they are listed with the reason.

use std::collections::BTreeMap;
use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use countersteer_model::events::ProcessorEvent;
use countersteer_sysfs::files::{self, text};
use countersteer_sysfs::procfs::{Procfs, field};

use crate::CounterError;

/// Folder in which the kernel lists PMUs.
const DEVICES: &str = "sys/bus/event_source/devices";

/// Bits of a config word that the value of a term fills, from the lowest bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigBits {
    /// Index of the config word: `config` is 0, `config1` is 1, and so on.
    pub(crate) word: usize,
    /// Lowest and highest bit of each range.
    pub(crate) bits: Vec<(u32, u32)>,
}

/// Event to which a PMU gives a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PmuEvent {
    /// Terms of the event with their values; the value `?` means that the user must give one.
    pub terms: Vec<(String, Option<String>)>,
    /// Factor by which a count is multiplied.
    pub scale: Option<f64>,
    /// Unit of the count after this multiplication.
    pub unit: Option<String>,
    /// Description of the event; `None` if no vendor's list has one.
    pub prose: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PmuFolder {
    pub name: String,
    pub kind: u32,
    /// Core model, by the kernel's name (`skylake`), or `zen` for AMD cores from family 17h on.
    pub model: Option<String>,
    /// CPUs whose cores the PMU belongs to; `None` if it belongs to no core, or to all.
    pub cpus: Option<CpuSet>,
    /// CPUs on which the PMU can be opened, for example one per package. `None` for PMUs of cores.
    pub mask: Option<CpuSet>,
    /// Number of counters per core; `None` if the kernel does not report it.
    pub counters: Option<u32>,
    /// Events by name.
    pub events: BTreeMap<String, PmuEvent>,
    /// Bits of each term, by the term's name.
    formats: BTreeMap<String, ConfigBits>,
}

/// All PMUs of a machine.
#[derive(Clone, Debug, Default)]
pub struct Pmus {
    pub list: Vec<PmuFolder>,
    pub online: CpuSet,
}

impl PmuFolder {
    /// Returns the event with this name; `None` if there is none. Vendors' names are stored in lower case.
    #[must_use]
    pub fn event(&self, name: &str) -> Option<&PmuEvent> {
        self.events
            .get(name)
            .or_else(|| self.events.get(&name.to_ascii_lowercase()))
    }

    /// True if the PMU belongs to a core.
    #[must_use]
    pub fn is_core(&self) -> bool {
        self.name == "cpu" || (self.cpus.is_some() && self.mask.is_none())
    }

    /// True if the PMU counts on this CPU.
    #[must_use]
    pub fn covers(&self, cpu: CpuId) -> bool {
        self.cpus
            .as_ref()
            .or(self.mask.as_ref())
            .is_none_or(|cpus| cpus.contains(cpu))
    }

    /// Returns the names of the PMU's terms.
    pub fn terms(&self) -> impl Iterator<Item = &str> {
        self.formats.keys().map(String::as_str)
    }

    /// Returns the config words of an event of the event table; `None` if the event does not belong to this PMU.
    pub(crate) fn config(&self, event: &ProcessorEvent) -> Option<[u64; 4]> {
        let is_mine =
            |name: &&str| *name == self.name || self.model.as_deref().is_some_and(|m| m == *name);
        let named = |terms: &str| {
            let known = self.event(terms)?;
            let term = |(name, value): &(String, Option<String>)| {
                let value = value.as_deref().map_or(Some(1), parse);
                Some((name.clone(), value?))
            };
            known.terms.iter().map(term).collect::<Option<Vec<_>>>()
        };
        let terms = if event.pmus.is_empty() {
            named(event.terms)?
        } else {
            let coded = |text: &str| {
                let (name, value) = text.split_once('=')?;
                Some((name.to_owned(), parse(value)?))
            };
            event.pmus.iter().find(|name| is_mine(name))?;
            event
                .terms
                .split(',')
                .map(coded)
                .collect::<Option<Vec<_>>>()?
        };
        let mut config = [0; 4];
        for (name, value) in terms {
            self.format(&name)?.place(value, &mut config).ok()?;
        }
        Some(config)
    }

    pub(crate) fn format(&self, term: &str) -> Option<&ConfigBits> {
        self.formats.get(term)
    }
}

impl ConfigBits {
    /// Parses a format such as `config:0-7,32-35`; `None` if it is invalid.
    fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.split_once(':')?;
        let word = match word.strip_prefix("config")? {
            "" => 0,
            digit => digit.parse().ok().filter(|w| (1..=3).contains(w))?,
        };
        let range = |r: &str| {
            let (low, high) = r.split_once('-').unwrap_or((r, r));
            let low = low.trim().parse::<u32>().ok()?;
            let high = high.trim().parse::<u32>().ok()?;
            (low <= high && high < 64).then_some((low, high))
        };
        Some(Self {
            word,
            bits: ranges.split(',').map(range).collect::<Option<_>>()?,
        })
    }

    /// Puts the value of a term into the config words.
    ///
    /// # Errors
    /// If the value is too large, the error is the largest value that fits.
    pub(crate) fn place(&self, value: u64, config: &mut [u64; 4]) -> Result<(), u64> {
        let width: u32 = self.bits.iter().map(|(low, high)| high - low + 1).sum();
        if width < 64 && value >> width != 0 {
            return Err((1 << width) - 1);
        }
        let mut rest = value;
        for (low, high) in &self.bits {
            let width = high - low + 1;
            let mask = if width == 64 {
                u64::MAX
            } else {
                (1 << width) - 1
            };
            config[self.word] |= (rest & mask) << low;
            rest = rest.checked_shr(width).unwrap_or(0);
        }
        Ok(())
    }
}

impl Pmus {
    /// Reads all PMUs below `root`. A machine without the folder has none.
    ///
    /// # Errors
    /// Fails for a type that is not a number, and for an invalid CPU list.
    pub fn read(root: &Path) -> Result<Self, CounterError> {
        let folder = root.join(DEVICES);
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort();
        let mut list = names
            .into_iter()
            .map(|name| read_pmu(&folder.join(&name), name))
            .collect::<Result<Vec<PmuFolder>, _>>()?;
        for pmu in list
            .iter_mut()
            .filter(|p| p.name == "cpu" && p.model.is_none())
        {
            pmu.model = is_zen(root).then(|| "zen".into());
        }
        let online = files::online(root).unwrap_or_else(|| CpuSet::first(1));
        Ok(Self { list, online })
    }

    #[must_use]
    pub fn named(&self, name: &str) -> Option<&PmuFolder> {
        self.list.iter().find(|p| p.name == name)
    }

    /// Returns the PMUs of cores, in the order of their first CPUs.
    #[must_use]
    pub fn cores(&self) -> Vec<&PmuFolder> {
        let mut cores: Vec<&PmuFolder> = self.list.iter().filter(|p| p.is_core()).collect();
        cores.sort_by_key(|p| p.cpus.as_ref().and_then(CpuSet::lowest));
        cores
    }
}

/// True if the first processor is one of AMD (or Hygon) from family 17h on.
fn is_zen(root: &Path) -> bool {
    let info = Procfs::below(root).cpuinfo();
    let field = |name: &str| field(&info, name);
    let family = field("cpu family").and_then(|f| f.parse::<u32>().ok());
    matches!(field("vendor_id"), Some("AuthenticAMD" | "HygonGenuine")) && family >= Some(0x17)
}

/// Parses the number of a term, such as `46` or `0x2e`; `None` if it is invalid.
pub(crate) fn parse(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok(),
        |hex| u64::from_str_radix(hex, 16).ok(),
    )
}

fn cpus(path: &Path) -> Result<Option<CpuSet>, CounterError> {
    files::cpus(path).map_err(|content| CounterError::Malformed {
        path: path.to_owned(),
        content,
        expected: "CPU list",
    })
}

fn entries(folder: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut list: Vec<(String, String)> = entries
        .filter_map(|e| Some((e.file_name().into_string().ok()?, text(&e.path())?)))
        .collect();
    list.sort();
    list
}

fn read_pmu(folder: &Path, name: String) -> Result<PmuFolder, CounterError> {
    let path = folder.join("type");
    let content = text(&path).unwrap_or_default();
    let Ok(kind) = content.parse() else {
        return Err(CounterError::Malformed {
            path,
            content,
            expected: "number",
        });
    };
    let formats = entries(&folder.join("format"));
    let number = |file: &str| files::value(&folder.join(file));
    Ok(PmuFolder {
        name,
        kind,
        model: text(&folder.join("caps/pmu_name")),
        cpus: cpus(&folder.join("cpus"))?,
        mask: cpus(&folder.join("cpumask"))?,
        counters: number("caps/num_counters").or_else(|| number("caps/counters")),
        events: read_events(&entries(&folder.join("events"))),
        formats: formats
            .into_iter()
            .filter_map(|(name, f)| Some((name, ConfigBits::parse(&f)?)))
            .collect(),
    })
}

/// Reads events from the files `name`, `name.scale` and `name.unit`, given as pairs of name and content.
fn read_events(files: &[(String, String)]) -> BTreeMap<String, PmuEvent> {
    let mut events: BTreeMap<String, PmuEvent> = BTreeMap::new();
    for (name, content) in files {
        if let Some(event) = name.strip_suffix(".scale") {
            events.entry(event.into()).or_default().scale =
                content.parse().ok().filter(|s: &f64| s.is_finite());
        } else if let Some(event) = name.strip_suffix(".unit") {
            events.entry(event.into()).or_default().unit = Some(content.clone());
        } else if !name.ends_with(".snapshot") && !name.ends_with(".per-pkg") {
            let term = |t: &str| {
                t.split_once('=')
                    .map_or((t.into(), None), |(k, v)| (k.into(), Some(v.into())))
            };
            events.entry(name.clone()).or_default().terms = content.split(',').map(term).collect();
        }
    }
    events.retain(|_, event| !event.terms.is_empty());
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_fill_their_bits_wherever_those_lie() {
        let format = ConfigBits::parse("config:0-7,32-35").unwrap();
        let mut config = [0; 4];
        format.place(0x941, &mut config).unwrap();
        assert_eq!(config, [0x9_0000_0041, 0, 0, 0]);
        assert_eq!(format.place(0x1000, &mut config), Err(0xfff));
        assert_eq!(
            ConfigBits::parse("config1:0-63")
                .unwrap()
                .place(u64::MAX, &mut config),
            Ok(())
        );
        assert_eq!(config[1], u64::MAX);
        for bad in [
            "",
            "config",
            "config9:0",
            "config:7-0",
            "config:0-64",
            "event:0-7",
            "config:x",
        ] {
            assert_eq!(ConfigBits::parse(bad), None, "{bad}");
        }
    }
}
