//! Maps from processors to event files (`mapfile.csv`), of Intel's repository and of the kernel's sources
//! (`tools/perf/pmu-events/arch/`).

use std::path::{Path, PathBuf};

use regex_lite::Regex;

use super::{VendorError, all_json, unreadable};

/// Returns the paths of the files that a map assigns to a processor. A line is
/// `GenuineIntel-6-(97|9A|B7),v1.24,/ADL/events/core.json,hybridcore,...`. In the kernel's sources, lines name folders, whose files
/// belong together, and Arm's processors by their identification without variant and revision.
pub(super) fn mapped(map: &Path, processor: &str) -> Result<Vec<PathBuf>, VendorError> {
    let text = countersteer_files::read::text(map).map_err(|source| unreadable(map, source))?;
    let folder = map.parent().unwrap_or(Path::new("."));
    let mut files = Vec::new();
    let design = design(processor);
    for (row, line) in text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'))
    {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let bad = |why: String| VendorError::Map {
            path: map.to_path_buf(),
            line: row + 1,
            why,
        };
        let [processors, _, file, ..] = fields[..] else {
            return Err(bad("it has fewer than three fields".into()));
        };
        if row == 0 && !processors.contains('-') && !processors.starts_with("0x") {
            continue;
        }
        // The files are relative to the map's folder, even if the map gives absolute paths.
        let relative = Path::new(file.trim_start_matches('/'));
        if relative
            .components()
            .any(|c| !matches!(c, std::path::Component::Normal(_)))
        {
            return Err(bad(format!("`{file}` leads out of the folder")));
        }
        if !fields.get(3).copied().is_none_or(has_events) {
            continue;
        }
        let pattern = pattern(processors).map_err(bad)?;
        if pattern.is_match(processor) || design.as_deref().is_some_and(|p| pattern.is_match(p)) {
            let named = folder.join(relative);
            match named.is_dir() {
                true => files.extend(all_json(&named)?),
                false => files.push(named),
            }
        }
    }
    Ok(files)
}

/// True if files of a kind list events, as `core`, `hybridcore`, `offcore` and `uncore experimental` do. Those of `metrics` and
/// of `retire latency` have another form.
fn has_events(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    kind.is_empty() || kind.contains("core") || kind == "fp_arith_inst"
}

/// Returns the regular expression for the processors of a map's line. It ignores a further suffix of a processor's name (its
/// stepping).
pub(super) fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(&format!("(?i)^(?:{text})(?:-|$)"))
        .map_err(|e| format!("`{text}` is no pattern: {e}"))
}

/// Returns the identification of an Arm processor without its variant and revision; `None` for other processors.
fn design(processor: &str) -> Option<String> {
    let midr = u64::from_str_radix(processor.strip_prefix("0x")?, 16).ok()?;
    Some(format!("{:#018x}", midr & !0x00f0_000f))
}
