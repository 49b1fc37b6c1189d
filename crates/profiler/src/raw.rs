//! Reader of the raw files of a recording.
//!
//! Input: the scratch directory (`layout`). Output: the windows of every thread, and the values of the control page. The files
//! of a killed program are valid; they lack only the unfinished slice.

use std::path::{Path, PathBuf};

use countersteer_model::profile::{Caveat, CaveatKind};

use super::ProfileError;
use super::layout::{self, PAGE, THREAD_BYTES, control, header, record};

#[derive(Clone, Debug)]
pub(crate) struct ThreadLog {
    pub ordinal: u64,
    pub pid: u64,
    pub ended: u64,
    /// Nonempty records, in order.
    pub windows: Vec<Vec<u64>>,
}

/// State of the control page at one time.
#[derive(Clone, Debug)]
pub(crate) struct ControlState {
    pub instructions: u64,
    /// Number of thread files so far.
    pub threads: u64,
    /// True if the limit was reached.
    pub stopped: bool,
    /// Number of times that the plugin was loaded.
    pub loaded: u64,
    /// Version of a plugin that refused, or 0.
    pub refused_version: u64,
    pub caveats: Vec<Caveat>,
}

/// Writes the control file of a new recording.
pub(crate) fn create_control(
    directory: &Path,
    limit: Option<u64>,
) -> Result<PathBuf, ProfileError> {
    let mut words = [0u64; PAGE / 8];
    words[control::MAGIC] = layout::CONTROL_MAGIC;
    words[control::VERSION] = layout::VERSION;
    words[control::LIMIT] = limit.unwrap_or(u64::MAX);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let path = directory.join(layout::CONTROL_FILE);
    std::fs::write(&path, bytes).map_err(|source| ProfileError::Scratch {
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

pub(crate) fn read_control(path: &Path) -> Result<ControlState, ProfileError> {
    let words = read_words(path)?;
    if words.len() != PAGE / 8 || words[control::MAGIC] != layout::CONTROL_MAGIC {
        return Err(damaged(path, "the control page was overwritten"));
    }
    Ok(ControlState {
        instructions: words[control::INSTRUCTIONS],
        threads: words[control::THREADS],
        stopped: words[control::STOP] != 0,
        loaded: words[control::LOADED],
        refused_version: words[control::REFUSED_VERSION],
        caveats: CaveatKind::ALL
            .into_iter()
            .filter_map(|kind| caveat(&words, kind))
            .collect(),
    })
}

/// Returns a caveat of the control page; `None` if the plugin noted none of this kind.
fn caveat(words: &[u64], kind: CaveatKind) -> Option<Caveat> {
    let own = &words[control::CAVEATS + kind as usize * control::CAVEAT_WORDS..];
    let (count, name) = own[..control::CAVEAT_WORDS].split_first()?;
    let bytes = name.iter().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let file = String::from_utf8_lossy(&bytes).into_owned();
    (*count > 0).then_some(Caveat { kind, file })
}

/// Reads all threads of the recording, in order of creation.
pub fn read_threads(directory: &Path) -> Result<Vec<ThreadLog>, ProfileError> {
    let scratch = |source| ProfileError::Scratch {
        path: directory.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(scratch)? {
        let path = entry.map_err(scratch)?.path();
        if path.extension().is_some_and(|e| e == layout::THREAD_SUFFIX) {
            paths.push(path);
        }
    }
    let mut threads = Vec::new();
    for path in paths {
        threads.extend(read_thread(&path)?);
    }
    threads.sort_by_key(|t| t.ordinal);
    Ok(threads)
}

/// Reads one thread's file; `None` if its creation was interrupted.
fn read_thread(path: &Path) -> Result<Option<ThreadLog>, ProfileError> {
    let head = read_part(path, PAGE)?;
    if head.len() < PAGE / 8 || head[header::MAGIC] == 0 {
        return Ok(None);
    }
    if head[header::MAGIC] != layout::THREAD_MAGIC || head[header::VERSION] != layout::VERSION {
        return Err(damaged(path, "not a raw record of this version"));
    }
    let complete = head[header::WINDOWS] as usize;
    let bytes = PAGE + (complete + 1) * record::WORDS * 8;
    if bytes > THREAD_BYTES {
        return Err(damaged(path, "more windows than the file can hold"));
    }
    let words = read_part(path, bytes)?;
    if words.len() * 8 != bytes {
        return Err(damaged(path, "the file is cut short"));
    }
    let windows = words[PAGE / 8..]
        .chunks_exact(record::WORDS)
        .filter(|w| w[record::INSTRUCTIONS] > 0);
    Ok(Some(ThreadLog {
        ordinal: head[header::ORDINAL],
        pid: head[header::PID],
        ended: head[header::ENDED],
        windows: windows.map(<[u64]>::to_vec).collect(),
    }))
}

fn damaged(path: &Path, reason: &str) -> ProfileError {
    ProfileError::Raw {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

fn read_words(path: &Path) -> Result<Vec<u64>, ProfileError> {
    read_part(path, PAGE)
}

fn read_part(path: &Path, bytes: usize) -> Result<Vec<u64>, ProfileError> {
    use std::io::Read;
    let scratch = |source| ProfileError::Scratch {
        path: path.to_owned(),
        source,
    };
    let mut part = Vec::with_capacity(bytes);
    std::fs::File::open(path)
        .map_err(scratch)?
        .take(bytes as u64)
        .read_to_end(&mut part)
        .map_err(scratch)?;
    Ok(part
        .as_chunks::<8>()
        .0
        .iter()
        .map(|b| u64::from_ne_bytes(*b))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, words: &[u64]) {
        std::fs::write(
            path,
            words
                .iter()
                .flat_map(|w| w.to_ne_bytes())
                .collect::<Vec<u8>>(),
        )
        .unwrap();
    }

    #[test]
    fn a_control_page_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = create_control(directory.path(), Some(5)).unwrap();
        let state = read_control(&path).unwrap();
        assert!(!state.stopped && state.instructions == 0 && state.loaded == 0);
        assert!(state.caveats.is_empty());
        let mut words = [0; PAGE / 8];
        words[control::MAGIC] = layout::CONTROL_MAGIC;
        let second = control::CAVEATS + control::CAVEAT_WORDS;
        words[second] = 3;
        words[second + 1] = u64::from_ne_bytes(*b"/lib/a.s");
        words[second + 2] = u64::from(b'o');
        write(&path, &words);
        let caveats = read_control(&path).unwrap().caveats;
        assert_eq!(caveats[0].file, "/lib/a.so");
        assert_eq!((caveats.len(), caveats[0].kind), (1, CaveatKind::Processor));
        write(&path, &[1; 512]);
        assert!(matches!(read_control(&path), Err(ProfileError::Raw { .. })));
    }

    #[test]
    fn damaged_and_foreign_files_are_refused_and_empty_ones_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("000001.raw");
        write(&path, &[]);
        assert!(read_threads(directory.path()).unwrap().is_empty());
        let mut head = vec![0u64; PAGE / 8];
        head[header::MAGIC] = layout::THREAD_MAGIC;
        head[header::VERSION] = layout::VERSION + 1;
        write(&path, &head);
        assert!(matches!(
            read_threads(directory.path()),
            Err(ProfileError::Raw { .. })
        ));
        head[header::VERSION] = layout::VERSION;
        write(&path, &head);
        assert!(
            read_threads(directory.path())
                .unwrap_err()
                .to_string()
                .contains("cut short")
        );
        let mut window = vec![0; record::WORDS];
        window[record::INSTRUCTIONS] = 9;
        write(&path, &[head, window].concat());
        assert_eq!(read_threads(directory.path()).unwrap()[0].windows.len(), 1);
    }
}
