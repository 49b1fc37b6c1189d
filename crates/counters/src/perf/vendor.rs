//! Event files of processor vendors, which are loaded at run time from a folder of the user.
//!
//! Input: a folder with JSON files as Intel publishes them (`perfmon`) or as the kernel's sources contain them for AMD and
//! Arm. A `mapfile.csv` may assign files to processors. Files in a subfolder with the name of a PMU are for that PMU. Output:
//! named events of the machine's PMUs, as if sysfs had them. No files are shipped with this program, because vendors' files
//! have licences and release dates of their own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use countersteer_sysfs::files;
use countersteer_sysfs::procfs::{self, Procfs};

use super::pmu::{PmuEvent, PmuFolder, Pmus};
use map::mapped;

mod map;

/// Event of a vendor's file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VendorEvent {
    /// Name of the event in lower case.
    name: String,
    /// Name of the kernel's PMU that counts the event; `None` for the core's PMU, of any name.
    pmu: Option<String>,
    /// Terms in the kernel's spelling, with hexadecimal values: (`event`, `0x2e`).
    terms: Vec<(String, String)>,
    /// Description of the event.
    prose: String,
}

/// Vendor's file that could not be used, with the reason.
#[derive(Debug, thiserror::Error)]
pub enum VendorError {
    /// The file could not be read.
    #[error(
        "{path}: {source}; vendors' event files belong there as JSON, with an optional mapfile.csv"
    )]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{path}: {source}; an event file is a list of events, or an object with such a list as `Events`"
    )]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// An event of the file is invalid.
    #[error("{path}: event {number}{name}: {why}")]
    Event {
        path: PathBuf,
        /// Number of the event in the file, from 1.
        number: usize,
        /// Name of the event in parentheses; empty if it has none.
        name: String,
        /// Reason for which the event is invalid.
        why: String,
    },
    /// A line of the map file is invalid.
    #[error("{path}:{line}: {why}; a line is `processor,version,file,type`")]
    Map {
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Reason for which the line is invalid.
        why: String,
    },
}

/// Fields of a vendor's event that become terms, with the name of the term. `EventCode`, `UMask` and the registers of
/// [`REGISTERS`] have rules of their own.
static FIELDS: &[(&str, &str)] = &[
    ("CounterMask", "cmask"),
    ("Invert", "inv"),
    ("EdgeDetect", "edge"),
    ("AnyThread", "any"),
    ("PortMask", "ch_mask"),
    ("FCMask", "fc_mask"),
    ("RdWrMask", "rdwrmask"),
    ("EnAllCores", "enallcores"),
    ("EnAllSlices", "enallslices"),
    ("SliceId", "sliceid"),
    ("ThreadMask", "threadmask"),
];

/// Further fields of a vendor's event that have a meaning here.
static KEPT: &[&str] = &[
    "ArchStdEvent",
    "BriefDescription",
    "ConfigCode",
    "Deprecated",
    "EventCode",
    "EventName",
    "ExtSel",
    "MSRIndex",
    "MSRValue",
    "PublicDescription",
    "UMask",
    "UMaskExt",
    "Unit",
];

/// Additional model-specific registers of an event, by address, with the term by which the kernel sets each.
static REGISTERS: &[(u64, &str)] = &[
    (0x3f6, "ldlat"),
    (0x1a6, "offcore_rsp"),
    (0x1a7, "offcore_rsp"),
    (0x3f7, "frontend"),
];

/// Units of Intel's files whose name in the kernel differs from `uncore_` and the unit's name.
static UNITS: &[(&str, &str)] = &[
    ("cpu_core", "cpu_core"),
    ("cpu_atom", "cpu_atom"),
    ("cpu_lowpower", "cpu_lowpower"),
    ("cbo", "uncore_cbox"),
    ("qpi ll", "uncore_qpi"),
    ("sbo", "uncore_sbox"),
    ("imph-u", "uncore_arb"),
    ("l3pmc", "amd_l3"),
    ("dfpmc", "amd_df"),
    ("umcpmc", "amd_umc"),
    ("cha", "uncore_cha"),
    ("cpu-m-cf", "cpum_cf"),
];

/// Returns the user's folder of vendors' event files; `None` if it does not exist.
#[must_use]
pub fn own() -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data = data
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    data.map(|data| data.join("countersteer/events"))
        .filter(|folder| folder.is_dir())
}

/// Adds the events of a folder to the machine's PMUs. Returns the number of events added.
///
/// The file systems below `root` identify the processor, by which a vendor's map is searched.
///
/// # Errors
/// Fails for files that cannot be read or are invalid.
pub fn add(folder: &Path, root: &Path, pmus: &mut Pmus) -> Result<usize, VendorError> {
    let processor = &processor(root);
    let mut added = 0;
    for event in load(folder, processor)? {
        added += insert(&event, pmus.list.iter_mut().filter(|p| event.is_of(p)));
    }
    for pmu in &mut pmus.list {
        let own = folder.join(&pmu.name);
        if own.is_dir() {
            for event in load(&own, processor)? {
                if event.pmu.is_none() || event.is_of(pmu) {
                    added += insert(&event, std::iter::once(&mut *pmu));
                }
            }
        }
    }
    Ok(added)
}

fn insert<'a>(event: &VendorEvent, pmus: impl Iterator<Item = &'a mut PmuFolder>) -> usize {
    let terms = event
        .terms
        .iter()
        .map(|(term, value)| (term.clone(), Some(value.clone())))
        .collect();
    let known = PmuEvent {
        terms,
        prose: Some(event.prose.clone()).filter(|p| !p.is_empty()),
        ..PmuEvent::default()
    };
    pmus.map(|pmu| pmu.events.insert(event.name.clone(), known.clone()))
        .count()
}

/// Returns the name of the processor in vendors' maps, from the file systems below `root`: `GenuineIntel-6-97-2`, or on Arm
/// its main identification register.
fn processor(root: &Path) -> String {
    let registers = files::cpu(root, 0).join("regs/identification");
    if let Some(midr) = files::text(&registers.join("midr_el1")) {
        return midr;
    }
    let text = Procfs::below(root).cpuinfo();
    let field = |name: &str| procfs::field(&text, name);
    let number = |name: &str| field(name).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    let vendor = field("vendor_id").unwrap_or("unknown");
    format!(
        "{vendor}-{}-{:X}-{:X}",
        number("cpu family"),
        number("model"),
        number("stepping")
    )
}

impl VendorEvent {
    /// True if a PMU counts this event. The common name of several PMUs refers to each of them (`uncore_imc` to
    /// `uncore_imc_0`).
    fn is_of(&self, pmu: &PmuFolder) -> bool {
        match &self.pmu {
            None => pmu.is_core(),
            Some(name) => {
                let number = pmu.name.strip_prefix(name.as_str());
                number.is_some_and(|n| {
                    n.is_empty()
                        || n.strip_prefix('_')
                            .is_some_and(|n| n.parse::<u32>().is_ok())
                })
            }
        }
    }
}

/// Loads the events of a processor from a folder. The processor's name is that of vendors' maps (`GenuineIntel-6-97-2`).
///
/// With a `mapfile.csv`, the files of the matching lines are loaded; without one, every JSON file of the folder.
///
/// # Errors
/// Fails for files that cannot be read or are invalid.
fn load(folder: &Path, processor: &str) -> Result<Vec<VendorEvent>, VendorError> {
    let map = folder.join("mapfile.csv");
    let (files, common) = if map.exists() {
        (mapped(&map, processor)?, common(folder)?)
    } else {
        (all_json(folder)?, Common::new())
    };
    let mut events: BTreeMap<(Option<String>, String), VendorEvent> = BTreeMap::new();
    for file in files {
        let text =
            countersteer_files::read::text(&file).map_err(|source| unreadable(&file, source))?;
        for event in parse(&file, &text, &common)? {
            events.insert((event.pmu.clone(), event.name.clone()), event);
        }
    }
    Ok(events.into_values().collect())
}

/// Texts and numbers of an event by the names of [`KEPT`] and [`FIELDS`]. A value of another kind is an empty text.
type Fields = BTreeMap<&'static str, String>;

/// Events by name in lower case.
type Common = BTreeMap<String, Fields>;

/// Returns the events beside a map, to which the files of single processors refer as `ArchStdEvent`.
fn common(folder: &Path) -> Result<Common, VendorError> {
    let mut common = Common::new();
    for file in all_json(folder)? {
        let text =
            countersteer_files::read::text(&file).map_err(|source| unreadable(&file, source))?;
        let correct = correct(&file, &text)?;
        for fields in list(&file, &correct)?.into_iter().filter_map(fields) {
            if let Some(name) = field(&fields, "EventName") {
                common.insert(name.to_ascii_lowercase(), fields);
            }
        }
    }
    Ok(common)
}

fn unreadable(path: &Path, source: std::io::Error) -> VendorError {
    VendorError::Unreadable {
        path: path.to_path_buf(),
        source,
    }
}

fn all_json(folder: &Path) -> Result<Vec<PathBuf>, VendorError> {
    let entries = std::fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
    let paths = entries.filter_map(|e| Some(e.ok()?.path()));
    let mut files: Vec<PathBuf> = paths
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    Ok(files)
}

/// Returns the text of a file as JSON. Files in the kernel's sources have commas behind last elements.
///
/// # Errors
/// Fails if the text is not JSON. Errors are those of the text as it is.
fn correct<'a>(path: &Path, text: &'a str) -> Result<Cow<'a, str>, VendorError> {
    let Err(error) = serde_json::from_str::<IgnoredAny>(text) else {
        return Ok(text.into());
    };
    let mended = without_last_commas(text);
    match serde_json::from_str::<IgnoredAny>(&mended) {
        Ok(_) => Ok(mended.into()),
        Err(_) => Err(json(path, error)),
    }
}

fn json(path: &Path, source: serde_json::Error) -> VendorError {
    VendorError::Json {
        path: path.to_path_buf(),
        source,
    }
}

/// Returns the list of events in a file. Parts of the text stand for them, since values of all fields would take up to a hundred
/// times the space.
fn list<'a>(path: &Path, text: &'a str) -> Result<Vec<&'a RawValue>, VendorError> {
    let found = match text.trim_start().chars().next() {
        Some('[') => serde_json::from_str(text),
        Some('{') => serde_json::from_str(text).map(|EventFile { events }| events),
        _ => Err(serde::de::Error::custom("neither a list nor an object")),
    };
    found.map_err(|source| json(path, source))
}

/// Object with a list of events.
#[derive(serde::Deserialize)]
struct EventFile<'a> {
    #[serde(borrow, rename = "Events")]
    events: Vec<&'a RawValue>,
}

/// Returns the fields of an event; `None` for an element of the list that is no object.
fn fields(event: &RawValue) -> Option<Fields> {
    // Errors of the parser are slow, and a list may have millions of other elements.
    if !event.get().starts_with('{') {
        return None;
    }
    let all: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(event.get()).ok()?;
    let known = KEPT.iter().chain(FIELDS.iter().map(|(name, _)| name));
    let kept = known.filter_map(|name| Some((*name, plain(all.get(*name)?))));
    Some(kept.collect())
}

/// Returns the text of a value; empty for a value that is neither a text, a number nor a truth value.
fn plain(value: &RawValue) -> String {
    match value.get() {
        "true" => "1".into(),
        "false" => "0".into(),
        text if text.starts_with('"') => serde_json::from_str(text).unwrap_or_default(),
        number if number.starts_with(['{', '[', 'n']) => String::new(),
        number => number.into(),
    }
}

/// Removes commas that no element follows.
fn without_last_commas(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let (mut in_text, mut is_escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        let is_last = || text[at + 1..].trim_start().starts_with(['}', ']']);
        if letter == ',' && !in_text && is_last() {
            continue;
        }
        in_text ^= letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        kept.push(letter);
    }
    kept
}

/// Parses the events of one file, without those that the vendor has withdrawn or the kernel cannot count.
///
/// # Errors
/// Fails if the file is not JSON, or if an event has no name, no code, or an invalid number.
fn parse(path: &Path, text: &str, common: &Common) -> Result<Vec<VendorEvent>, VendorError> {
    let text = correct(path, text)?;
    let mut events = Vec::new();
    for (row, value) in list(path, &text)?.into_iter().enumerate() {
        let Some(own) = fields(value) else {
            continue;
        };
        let fields = &with_common(own, common);
        let name = field(fields, "EventName");
        let known = name.as_ref().map(|n| format!(" ({})", begin_of(n)));
        let known = known.unwrap_or_default();
        let bad = |why| VendorError::Event {
            path: path.to_path_buf(),
            number: row + 1,
            name: known.clone(),
            why,
        };
        // The lists also contain metrics, and refer to common events that may be missing; these have no code.
        if !["EventCode", "ConfigCode"]
            .iter()
            .any(|code| fields.contains_key(*code))
        {
            continue;
        }
        if field(fields, "Deprecated").is_some_and(|d| d != "0") {
            continue;
        }
        let name = name.ok_or_else(|| bad("it has no EventName".into()))?;
        let Some(terms) = terms(fields).map_err(bad)? else {
            continue;
        };
        events.push(VendorEvent {
            name: name.to_ascii_lowercase(),
            pmu: unit(fields),
            terms,
            prose: field(fields, "BriefDescription")
                .or_else(|| field(fields, "PublicDescription"))
                .unwrap_or_default(),
        });
    }
    Ok(events)
}

/// Returns the fields of an event, added to those of the common event to which it refers.
fn with_common(own: Fields, common: &Common) -> Fields {
    let named = field(&own, "ArchStdEvent").map(|name| name.to_ascii_lowercase());
    let mut fields = named
        .and_then(|name| common.get(&name).cloned())
        .unwrap_or_default();
    fields.extend(own);
    fields
}

fn field(fields: &Fields, name: &str) -> Option<String> {
    let text = fields.get(name)?.trim();
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn unit(fields: &Fields) -> Option<String> {
    let unit = field(fields, "Unit")?.to_ascii_lowercase();
    if unit == "core" || unit == "cpu" {
        return None;
    }
    let known = UNITS.iter().find(|(vendor, _)| *vendor == unit);
    Some(known.map_or_else(
        || format!("uncore_{}", unit.replace(' ', "_")),
        |(_, kernel)| (*kernel).to_owned(),
    ))
}

/// Returns the terms of an event; `None` if it needs a register that the kernel sets for no event.
fn terms(fields: &Fields) -> Result<Option<Vec<(String, String)>>, String> {
    let mut terms = Vec::new();
    let mut add = |term: &str, value: u64| terms.push((term.to_owned(), format!("{value:#x}")));
    let number = |name: &str| {
        field(fields, name)
            .map(|text| one_number(name, &text))
            .transpose()
    };
    if let Some(config) = number("ConfigCode")? {
        add("config", config);
    } else {
        let code = number("EventCode")?.unwrap_or(0);
        add("event", code | number("ExtSel")?.unwrap_or(0) << 8);
    }
    let umask = number("UMask")?.unwrap_or(0) | number("UMaskExt")?.unwrap_or(0) << 8;
    if umask != 0 {
        add("umask", umask);
    }
    for (name, term) in FIELDS {
        // Vendors write zero for fields that do not apply, and not every PMU has the term.
        if let Some(value) = number(name)?.filter(|v| *v != 0) {
            add(term, value);
        }
    }
    if let Some(register) = number("MSRIndex")?.filter(|r| *r != 0) {
        let known = REGISTERS.iter().find(|(index, _)| *index == register);
        let Some((_, term)) = known else {
            return Ok(None);
        };
        add(term, number("MSRValue")?.unwrap_or(0));
    }
    Ok(Some(terms))
}

/// Parses a number in decimal or hexadecimal. If there are alternatives (`0xB7,0xBB`), the first is used.
fn one_number(name: &str, text: &str) -> Result<u64, String> {
    let first = text.split(',').next().unwrap_or_default().trim();
    let lower = first.to_ascii_lowercase();
    let number = lower.strip_prefix("0x").map_or_else(
        || lower.parse().ok(),
        |hex| u64::from_str_radix(hex, 16).ok(),
    );
    number.ok_or_else(|| format!("{name} `{}` is no number", begin_of(text)))
}

/// Returns the begin of a text, for errors.
fn begin_of(text: &str) -> Cow<'_, str> {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests;
