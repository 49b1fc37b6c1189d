//! Small files of sysfs.
//!
//! Input: a path. Output: its trimmed text or value; `None` if it is missing or unreadable, because devices vanish and some
//! files refuse to be read.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use countersteer_files::read;
use countersteer_model::cpuset::{CpuSet, MAX_CPU};
use countersteer_model::units::CpuId;

/// Returns the trimmed text of a file; `None` if it is empty. The NUL at the end of device-tree strings is removed too.
#[must_use]
pub fn text(path: &Path) -> Option<String> {
    let bytes = read::bytes(path, read::MOST_TEXT).ok()?;
    trimmed(&String::from_utf8_lossy(&bytes))
}

/// Returns a file's text without white space around it; `None` if nothing is left.
pub(crate) fn trimmed(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the parsed value of a file.
#[must_use]
pub fn value<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// Returns the number in a sensor's file.
#[must_use]
pub fn number(path: &Path) -> Option<f64> {
    value(path).filter(|n: &f64| n.is_finite())
}

/// Returns the CPU list in a file; `None` if the file does not exist.
///
/// # Errors
/// Returns the text if it is no CPU list.
pub fn cpus(path: &Path) -> Result<Option<CpuSet>, String> {
    let parsed = text(path).map(|text| text.parse().map_err(|_| text));
    parsed.transpose()
}

/// Parses a CPU bit mask as sysfs prints it: hexadecimal words of 32 bits, the highest first.
#[must_use]
pub fn mask(text: &str) -> Option<CpuSet> {
    let words: Option<Vec<u64>> = text
        .rsplit(',')
        .map(|word| u32::from_str_radix(word.trim(), 16).ok().map(u64::from))
        .collect();
    let words = words?;
    let pairs = words.chunks(2);
    let set = CpuSet::from_words(
        pairs
            .map(|w| w[0] | w.get(1).copied().unwrap_or(0) << 32)
            .collect(),
    );
    (set.words().len() <= MAX_CPU as usize / 64 + 1).then_some(set)
}

const CPUS: &str = "sys/devices/system/cpu";

/// Returns the online CPUs, by the kernel's numbers. Kernels before 2.6.26 have no list, and containers may have no sysfs. Then
/// the CPUs with a topology are used, or else those that `/proc/stat` or `/proc/cpuinfo` lists.
#[must_use]
pub fn online(root: &Path) -> Option<CpuSet> {
    let listed = value(&root.join(CPUS).join("online"));
    let known = |set: &CpuSet| !set.is_empty();
    let with_topology = || {
        let cpus = all_cpus(root).into_iter();
        cpus.filter(|(_, folder)| folder.join("topology").is_dir())
            .map(|(cpu, _)| cpu)
            .collect()
    };
    listed
        .filter(known)
        .or_else(|| Some(with_topology()).filter(known))
        .or_else(|| Some(counted(root)).filter(known))
}

/// Returns the CPUs with a line in `/proc/stat`, or else in `/proc/cpuinfo`.
fn counted(root: &Path) -> CpuSet {
    let lines = |file: &str, number: fn(&str) -> Option<u32>| -> CpuSet {
        let text = text(&root.join("proc").join(file)).unwrap_or_default();
        let numbers = text.lines().filter_map(number);
        numbers.filter(|n| *n <= MAX_CPU).map(CpuId).collect()
    };
    let of_stat = lines("stat", |line| {
        line.strip_prefix("cpu")?.split(' ').next()?.parse().ok()
    });
    if !of_stat.is_empty() {
        return of_stat;
    }
    lines("cpuinfo", |line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "processor")
            .then(|| value.trim().parse().ok())
            .flatten()
    })
}

/// Returns the folders of all CPUs, including offline ones, by the kernel's numbers.
#[must_use]
pub fn all_cpus(root: &Path) -> Vec<(CpuId, PathBuf)> {
    let numbers = numbered(&root.join(CPUS), "cpu").unwrap_or_default();
    let folder = |number| (CpuId(number), cpu(root, number));
    numbers.into_iter().map(folder).collect()
}

/// Returns the folder of a CPU.
#[must_use]
pub fn cpu(root: &Path, cpu: u32) -> PathBuf {
    root.join(format!("{CPUS}/cpu{cpu}"))
}

/// Returns the numbers N of the folder's entries named `prefix` followed by N.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn numbered(folder: &Path, prefix: &str) -> io::Result<Vec<u32>> {
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = std::fs::read_dir(folder)?
        .flatten()
        .filter_map(|e| number(e.file_name().to_str()?))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the folders and links to folders in a folder, sorted by name; numbers within names are compared numerically.
#[must_use]
pub fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    found.sort_by_cached_key(|p| name_key(p));
    found
}

/// Returns the files in a folder.
#[must_use]
pub fn files(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_file()).collect();
    found.sort_by_cached_key(|p| name_key(p));
    found
}

/// Returns the last component of a path.
#[must_use]
pub fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
}

/// Sorts `cpu10` after `cpu9`.
fn name_key(path: &Path) -> (String, u64, String) {
    let name = name(path);
    let digits = name
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(name.len());
    let (prefix, rest) = name.split_at(digits);
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    (
        prefix.to_owned(),
        rest[..end].parse().unwrap_or(0),
        name.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn files_have_texts_numbers_and_lists_or_nothing() {
        let root = tempfile::tempdir().unwrap();
        let cpus = "sys/devices/system/cpu";
        write(
            root.path(),
            &[
                (&format!("{cpus}/online"), "0-2,9\n"),
                (&format!("{cpus}/cpu9/capacity"), " 446\n"),
                (&format!("{cpus}/cpu10/capacity"), "much\n"),
                (&format!("{cpus}/cpufreq/x"), "\n"),
                ("model", "Board 3\0"),
            ],
        );
        let file = |path: &str| root.path().join(path);
        assert_eq!(online(root.path()).map(|cpus| cpus.len()), Some(4));
        assert_eq!(numbered(&file(cpus), "cpu").unwrap(), [9, 10]);
        let tenth = (CpuId(10), cpu(root.path(), 10));
        assert_eq!(all_cpus(root.path()).last(), Some(&tenth));
        let names = folders(&file(cpus))
            .iter()
            .map(|f| name(f).to_owned())
            .collect::<Vec<_>>();
        assert_eq!(names, ["cpu9", "cpu10", "cpufreq"]);
        let capacity = |number| value::<u32>(&cpu(root.path(), number).join("capacity"));
        assert_eq!([9, 10, 11].map(capacity), [Some(446), None, None]);
        assert_eq!(text(&file("model")).as_deref(), Some("Board 3"));
        assert_eq!(text(&file(&format!("{cpus}/cpufreq/x"))), None);
        assert_eq!(number(&file(&format!("{cpus}/cpu9/capacity"))), Some(446.0));
    }
}
