//! Control page: state that all threads and processes of a recording share.
//!
//! Input and output: words of the `control` file (`layout::control`), changed with atomic operations. The file is mapped, so a
//! program that closes all descriptors or changes its root directory still reaches it.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use countersteer_model::profile::CaveatKind;

use crate::layout::{self, PAGE, control};
use crate::mapping::MappedWords;

pub struct WindowControl {
    mapping: MappedWords,
}

// SAFETY: the page is only ever touched through atomic operations.
unsafe impl Send for WindowControl {}
// SAFETY: as above.
unsafe impl Sync for WindowControl {}

impl WindowControl {
    /// Opens the control file of the scratch directory.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(layout::CONTROL_FILE);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let this = Self {
            mapping: MappedWords::new(&file, PAGE)?,
        };
        if this.word(control::MAGIC).load(Relaxed) != layout::CONTROL_MAGIC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the control file is not one",
            ));
        }
        if this.word(control::VERSION).load(Relaxed) != layout::VERSION {
            this.word(control::REFUSED_VERSION)
                .store(layout::VERSION, Relaxed);
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "plugin and steer are of different versions",
            ));
        }
        this.word(control::LOADED).fetch_add(1, Relaxed);
        this.word(control::LAST_PID)
            .store(u64::from(std::process::id()), Relaxed);
        Ok(this)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the page has PAGE / 8 words, `at` is one of the constants below that, and the mapping is aligned.
        unsafe { AtomicU64::from_ptr(self.mapping.as_ptr().add(at)) }
    }

    /// Takes the next thread number, from 1.
    pub fn next_thread(&self) -> u64 {
        self.word(control::THREADS).fetch_add(1, Relaxed) + 1
    }

    /// Returns the instructions of all threads so far.
    pub fn instructions(&self) -> u64 {
        self.word(control::INSTRUCTIONS).load(Relaxed)
    }

    /// Adds instructions and returns the new sum.
    pub fn add_instructions(&self, count: u64) -> u64 {
        self.word(control::INSTRUCTIONS).fetch_add(count, Relaxed) + count
    }

    /// Returns the number of instructions after which the recording ends.
    pub fn limit(&self) -> u64 {
        self.word(control::LIMIT).load(Relaxed)
    }

    /// True if the recording is to end.
    pub fn stopped(&self) -> bool {
        self.word(control::STOP).load(Relaxed) != 0
    }

    /// Requests the end of every process of the recording.
    pub fn stop(&self) {
        self.word(control::STOP).store(1, Relaxed);
    }

    /// Returns the number of runnable threads of the recording.
    pub fn active(&self) -> u64 {
        let lost = self.word(control::LOST).load(Relaxed);
        self.word(control::ACTIVE)
            .load(Relaxed)
            .saturating_sub(lost)
    }

    pub fn activate(&self) {
        self.word(control::ACTIVE).fetch_add(1, Relaxed);
    }

    /// Removes a runnable thread, which entered the kernel or ended.
    pub fn deactivate(&self) {
        self.word(control::ACTIVE).fetch_sub(1, Relaxed);
    }

    /// Notes a difference between this run and a run without the recorder. The file name of the first occurrence is kept.
    pub fn note(&self, kind: CaveatKind, file: &[u8]) {
        let first = control::CAVEATS + kind as usize * control::CAVEAT_WORDS;
        if self.word(first).fetch_add(1, Relaxed) > 0 {
            return;
        }
        let names = first + 1..first + control::CAVEAT_WORDS;
        // A longer name may have been stored here and taken back.
        for (at, bytes) in names.zip(file.chunks(8).chain(std::iter::repeat(&[][..]))) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word(at).store(u64::from_ne_bytes(word), Relaxed);
        }
    }

    /// Takes back the last note: its cause did not occur.
    pub fn take_back(&self, kind: CaveatKind) {
        let first = control::CAVEATS + kind as usize * control::CAVEAT_WORDS;
        self.word(first).fetch_sub(1, Relaxed);
    }

    /// Sets the limit; outside of tests only the host does.
    #[cfg(test)]
    pub fn set_limit_for_test(&self, limit: u64) {
        self.word(control::LIMIT).store(limit, Relaxed);
    }

    /// Creates a control file as the host does, and opens it.
    #[cfg(test)]
    pub fn create_for_test(directory: &Path) -> Self {
        let mut words = [0u64; PAGE / 8];
        words[control::MAGIC] = layout::CONTROL_MAGIC;
        words[control::VERSION] = layout::VERSION;
        words[control::LIMIT] = u64::MAX;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        std::fs::write(directory.join(layout::CONTROL_FILE), bytes).unwrap();
        Self::open(directory).unwrap()
    }
}
