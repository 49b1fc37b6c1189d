//! Number of bytes that the packed parts of one file have unpacked. Few packed bytes can stand for very many, so the number has a bound.

use countersteer_files::read::MOST_RECORDING;

/// Bytes that any file may have unpacked.
const ALWAYS: u64 = 64 << 20;
/// Bytes that a file may have unpacked, per byte of its own. Recordings of the kernel's events have about ten.
const PER_BYTE: u64 = 100;

/// Bytes that a file may still have unpacked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnpackedBytes {
    most: u64,
    left: u64,
}

impl UnpackedBytes {
    /// Creates the bound of a file with a length in bytes.
    pub fn of(length: usize) -> Self {
        let most = (length as u64).saturating_mul(PER_BYTE);
        let most = most.clamp(ALWAYS, MOST_RECORDING);
        Self { most, left: most }
    }

    /// Counts bytes that are about to be unpacked.
    pub fn add(&mut self, bytes: u64) -> Result<(), String> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| {
            format!(
                "it has more than {} bytes unpacked, far more than packed",
                self.most
            )
        })?;
        Ok(())
    }

    /// Number of bytes that the next packed part may have unpacked.
    pub fn left(self) -> u64 {
        self.left
    }
}
