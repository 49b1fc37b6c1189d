//! Event lists of processor vendors, in the JSON format that Intel publishes (the perfmon repository) and others follow.
//!
//! Input: a folder of such files. Output: named events of the machine's PMUs, as if sysfs had them. Files that lie in the
//! folder are for every core PMU, those in a subfolder for the PMU of that name (`cpu_core/`, `cpu_atom/`).

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::CounterError;
use super::pmu::{Pmu, PmuEvent, Pmus};

/// A file: a list of events, or an object that has one.
#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    List(Vec<Row>),
    Object {
        #[serde(rename = "Events")]
        events: Vec<Row>,
    },
}

/// An event; fields that say nothing about its encoding are left alone.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    event_name: Option<String>,
    event_code: Option<String>,
    #[serde(rename = "UMask")]
    umask: Option<String>,
    #[serde(rename = "UMaskExt")]
    umask_ext: Option<String>,
    counter_mask: Option<String>,
    invert: Option<String>,
    edge_detect: Option<String>,
    #[serde(rename = "MSRIndex")]
    msr_index: Option<String>,
    #[serde(rename = "MSRValue")]
    msr_value: Option<String>,
    brief_description: Option<String>,
    unit: Option<String>,
}

/// Terms of events that need a second register, by its number.
const MSR_TERMS: [(u64, &str); 4] =
    [(0x1a6, "offcore_rsp"), (0x1a7, "offcore_rsp"), (0x3f6, "ldlat"), (0x3f7, "frontend")];

/// Adds the events of a folder to the machine's PMUs; returns how many.
///
/// # Errors
/// The folder cannot be read, a file is no such list, a subfolder is named after no PMU.
pub fn add(folder: &Path, pmus: &mut Pmus) -> Result<usize, CounterError> {
    let mut added = 0;
    for path in entries(folder)? {
        if path.is_dir() {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            // Lists for several machines may lie side by side.
            let Some(pmu) = pmus.list.iter_mut().find(|p| p.name == name) else { continue };
            for file in entries(&path)? {
                added += add_file(&file, &mut [pmu])?;
            }
        } else {
            let mut cores: Vec<&mut Pmu> = pmus.list.iter_mut().filter(|p| p.is_core()).collect();
            added += add_file(&path, &mut cores)?;
        }
    }
    Ok(added)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, CounterError> {
    let failed = |source| CounterError::Vendor { path: folder.into(), why: std::io::Error::to_string(&source) };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).map_err(failed)?.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.is_dir() || p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    Ok(paths)
}

fn add_file(path: &Path, pmus: &mut [&mut Pmu]) -> Result<usize, CounterError> {
    let failed = |why: String| CounterError::Vendor { path: path.into(), why };
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let rows = match serde_json::from_str(&text).map_err(|e| failed(e.to_string()))? {
        File::List(rows) | File::Object { events: rows } => rows,
    };
    let mut added = 0;
    for row in &rows {
        let (Some(name), Some(event)) = (&row.event_name, row.event()) else { continue };
        let outside = |p: &Pmu| row.unit.as_ref().is_some_and(|u| *u != p.name && !u.eq_ignore_ascii_case("core"));
        for pmu in pmus.iter_mut().filter(|p| !outside(p)) {
            pmu.events.insert(name.clone(), event.clone());
            added += 1;
        }
    }
    Ok(added)
}

fn number(text: Option<&String>) -> Option<u64> {
    // Two alternatives may be given, as in `0xB7, 0xBB`; either will do.
    let first = text?.split(',').next()?.trim();
    first.strip_prefix("0x").map_or_else(|| first.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
}

impl Row {
    fn event(&self) -> Option<PmuEvent> {
        let umask = number(self.umask.as_ref()).unwrap_or(0) | number(self.umask_ext.as_ref()).unwrap_or(0) << 8;
        let msr = number(self.msr_index.as_ref()).filter(|n| *n > 0);
        let msr_term = msr.and_then(|n| MSR_TERMS.iter().find(|(index, _)| *index == n)).map(|(_, term)| *term);
        let terms = [
            ("event", Some(number(self.event_code.as_ref())?)),
            ("umask", Some(umask).filter(|n| *n > 0)),
            ("cmask", number(self.counter_mask.as_ref()).filter(|n| *n > 0)),
            ("inv", number(self.invert.as_ref()).filter(|n| *n > 0)),
            ("edge", number(self.edge_detect.as_ref()).filter(|n| *n > 0)),
            (msr_term.unwrap_or_default(), msr_term.and(number(self.msr_value.as_ref()))),
        ];
        let terms = terms.into_iter().filter_map(|(term, n)| Some((term.to_owned(), Some(format!("{:#x}", n?)))));
        Some(PmuEvent { terms: terms.collect(), prose: self.brief_description.clone(), ..PmuEvent::default() })
    }
}
