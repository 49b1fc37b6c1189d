//! Signatures that programs of this machine carry.
//!
//! Input: a process. Output: the signature inside its binary, or in a side file. A binary is read once; one whose signature is
//! damaged counts as one without.

use std::os::unix::fs::MetadataExt;

use countersteer_cache::signature::{SignatureError, store};
use countersteer_core::signature::Signature;
use rustc_hash::FxHashMap;

/// Binaries that are remembered; beyond, all are forgotten.
const MOST: usize = 4096;

/// Signatures of binaries by device, inode and time of change.
#[derive(Default)]
pub struct Signatures(FxHashMap<(u64, u64, i64), Option<Signature>>);

impl Signatures {
    /// The signature of what a process executes now.
    pub fn of_process(&mut self, pid: u32) -> Option<Signature> {
        let file = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        let key = (file.dev(), file.ino(), file.ctime());
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let found = store::of_process(pid).unwrap_or_else(|error| {
            if let SignatureError::Foreign { .. } | SignatureError::Elf { .. } = error {
                eprintln!("steer: {error}; it counts as a program without a signature");
            }
            None
        });
        let signature = found.map(|(carried, _)| carried.signature());
        self.0.insert(key, signature.clone());
        signature
    }
}
