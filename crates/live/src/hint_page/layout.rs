//! Layout of hint pages, which a program and an engine share.
//!
//! Input: pages in memory, or their bytes. Output: hints of the program, advice of the engine.
//!
//! A process has one anonymous file ([`NAME`]), sealed so that its size cannot change, open under the first free descriptor
//! from [`FIRST`] on. A process that may read `/proc/PID/fd` can therefore find it, and it disappears with the program. All
//! numbers are in the byte order of the machine, and all other bytes are zero:
//!
//! ```text
//! byte 0      Head                      magic, version, sizes, the process
//! byte 4096   Slot 0, 256 bytes
//!               byte 0    FromProgram   written by the program only, 128 bytes
//!               byte 128  FromEngine    written by the engine only (and wiped when another thread takes the slot), 128 bytes
//! byte 4352   Slot 1 ...
//! ```
//!
//! Processors fetch 128 bytes at once, so writes to one half do not slow accesses to the other. `seq` is odd while its half is
//! being written, and greater by two afterwards. A half that is read between two equal even numbers is consistent.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use countersteer_model::hint::Hint;

/// Name of the page file in `/proc/PID/fd`.
pub(crate) const NAME: &str = "countersteer-pages";
/// First descriptor that the page file may have.
pub(crate) const FIRST: i32 = 1000;
/// Number of descriptors that the page file may have, from the first on.
pub(crate) const TRIES: i32 = 4;
/// First bytes of a page file.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"cspages\0");
/// Version of the layout.
pub(crate) const VERSION: u32 = 1;
/// Size of the head before the slots, in bytes.
pub(crate) const HEAD: usize = 4096;
/// Size of a slot in bytes.
pub(crate) const SLOT: usize = size_of::<HintSlot>();
/// Limit on the number of threads of a process that have a page at the same time.
pub(crate) const SLOTS: usize = 4096;
/// Size of the page file in bytes.
pub(crate) const LENGTH: usize = HEAD + SLOTS * SLOT;
/// Size of a core type's name in bytes, including a terminating zero; longer names are truncated.
pub(crate) const NAME_BYTES: usize = 32;
/// Value of the TID in a slot that is being taken by a thread.
pub(crate) const TAKEN: u32 = u32::MAX;

#[repr(C)]
pub(crate) struct PageHead {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) slot_bytes: AtomicU32,
    pub(crate) slots: AtomicU32,
    /// PID in the process's own namespace. It differs in a child that has inherited the file.
    pub(crate) pid: AtomicU32,
    /// Number of slots that were ever used.
    pub(crate) used: AtomicU32,
}

/// Slot: the memory that one thread shares with the engine.
#[repr(C)]
pub(crate) struct HintSlot {
    pub(crate) program: FromProgram,
    pub(crate) engine: FromEngine,
}

/// Half of a slot that the program writes: the hint about a thread.
#[repr(C, align(128))]
pub(crate) struct FromProgram {
    /// TID in the thread's own namespace; 0 in a free slot.
    pub(crate) tid: AtomicU32,
    /// Sequence number of this half; odd while the hint is being written.
    pub(crate) seq: AtomicU32,
    /// Start time of the thread, in clock ticks since boot. TIDs are reused; pairs with the start time are not.
    pub(crate) started: AtomicU64,
    /// Priority, an i32 as bits.
    pub(crate) priority: AtomicU32,
    /// Sufficient speed in thousandths of the full speed; 0 if not given.
    pub(crate) qos_permille: AtomicU32,
    /// Index in [`countersteer_model::hint::PHASES`]. It may change without `seq`, because it is a single value.
    pub(crate) phase: AtomicU32,
    /// Number of threads that share the work; 0 if not given.
    pub(crate) workers: AtomicU32,
    /// Units of work done so far, with wrap-around; 0 if none was ever reported. It may change without `seq`, like `phase`.
    pub(crate) work: AtomicU64,
}

/// Half of a slot that the engine writes: the advice to a thread.
#[repr(C, align(128))]
pub(crate) struct FromEngine {
    pub(crate) seq: AtomicU32,
    pub(crate) rank: AtomicU32,
    /// Number of core types of the machine; 0 if no engine gives advice.
    pub(crate) core_types: AtomicU32,
    reserved: AtomicU32,
    /// Speed-up factor, an f64 as bits; NaN if unknown.
    pub(crate) sf: AtomicU64,
    /// Speed on the core type relative to the slowest, an f64 as bits; NaN if unknown.
    pub(crate) speed: AtomicU64,
    /// Fraction of a CPU, an f64 as bits; NaN if unknown.
    pub(crate) share: AtomicU64,
    /// Name of the core type, with a terminating zero.
    pub(crate) core_type: [AtomicU64; NAME_BYTES / 8],
}

/// Advice of an engine to a thread of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HintAdvice {
    /// Number that changes whenever another field changes.
    pub epoch: u32,
    /// Rank of the thread's core type among those of the machine; 0 is the fastest.
    pub rank: u32,
    /// Number of core types of the machine.
    pub core_types: u32,
    /// Predicted speed-up factor: the speed of the thread on the fastest type relative to the slowest. `None` if unknown.
    pub sf: Option<f64>,
    /// Speed of the thread's core type relative to the machine's slowest, for this thread if `sf` is known, otherwise nominal.
    pub speed: f64,
    /// Fraction of a CPU's time that the thread gets beside the other steered threads, at most 1.
    pub share: f64,
    /// Name of the core type, with a terminating zero.
    pub(crate) name: [u8; NAME_BYTES],
}

impl HintAdvice {
    /// Returns the name of the thread's core type.
    #[must_use]
    pub fn core_type(&self) -> &str {
        let end = self.name.iter().position(|b| *b == 0).unwrap_or(NAME_BYTES);
        // A name that was truncated in the middle of a character ends before this character.
        let whole = |e: std::str::Utf8Error| {
            std::str::from_utf8(&self.name[..e.valid_up_to()]).unwrap_or_default()
        };
        std::str::from_utf8(&self.name[..end]).unwrap_or_else(whole)
    }

    /// Returns a name as bytes with a terminating zero; a longer name is truncated.
    pub(crate) fn name_of(text: &str) -> [u8; NAME_BYTES] {
        let mut name = [0; NAME_BYTES];
        name.iter_mut()
            .zip(text.bytes().take(NAME_BYTES - 1))
            .for_each(|(to, from)| *to = from);
        name
    }
}

/// Limit on the number of read attempts. A half that changes faster than it is read, or was left half written, counts as
/// absent.
const ATTEMPTS: u32 = 100;

impl FromProgram {
    /// Writes all fields of the hint so that a reader sees all or none of the change.
    pub(crate) fn tell(&self, hint: &Hint) {
        let odd = self.seq.load(Ordering::Relaxed) | 1;
        self.seq.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        self.priority
            .store(i32::from(hint.priority) as u32, Ordering::Relaxed);
        self.qos_permille
            .store(hint.qos_permille.into(), Ordering::Relaxed);
        self.phase.store(hint.phase as u32, Ordering::Relaxed);
        self.workers.store(hint.workers, Ordering::Relaxed);
        self.seq.store(odd.wrapping_add(1), Ordering::Release);
    }
}

impl FromEngine {
    /// Returns the engine's advice; `None` if there is none or it cannot be read consistently.
    pub(crate) fn read(&self) -> Option<HintAdvice> {
        for _ in 0..ATTEMPTS {
            let epoch = self.seq.load(Ordering::Acquire);
            let number = |value: &AtomicU64| f64::from_bits(value.load(Ordering::Relaxed));
            let mut name = [0; NAME_BYTES];
            for (to, word) in name.chunks_exact_mut(8).zip(&self.core_type) {
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            let advice = HintAdvice {
                epoch,
                rank: self.rank.load(Ordering::Relaxed),
                core_types: self.core_types.load(Ordering::Relaxed),
                sf: Some(number(&self.sf)).filter(|sf| !sf.is_nan()),
                speed: number(&self.speed),
                share: number(&self.share),
                name,
            };
            fence(Ordering::Acquire);
            if epoch.is_multiple_of(2) && self.seq.load(Ordering::Relaxed) == epoch {
                return Some(advice).filter(|a| a.core_types > 0);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Clears the advice that the engine gave the former thread of the slot.
    pub(crate) fn wipe(&self) {
        let odd = self.seq.load(Ordering::Relaxed) | 1;
        self.seq.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        self.core_types.store(0, Ordering::Relaxed);
        self.seq.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// Returns the 32-bit field at an offset; 0 beyond the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    found.map_or(0, u32::from_ne_bytes)
}

/// Returns the 64-bit field at an offset; 0 beyond the end.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    found.map_or(0, u64::from_ne_bytes)
}

/// Returns the number of used slots in a page file, given its head. `None` if the file has another layout, or belongs to a
/// process with another PID in its own namespace.
pub(crate) fn used_of(head: &[u8], pid: u32) -> Option<usize> {
    let ours = long(head, offset_of!(PageHead, magic)) == MAGIC
        && word(head, offset_of!(PageHead, version)) == VERSION
        && word(head, offset_of!(PageHead, slot_bytes)) as usize == SLOT
        && word(head, offset_of!(PageHead, slots)) as usize == SLOTS
        && word(head, offset_of!(PageHead, pid)) == pid;
    ours.then(|| (word(head, offset_of!(PageHead, used)) as usize).min(SLOTS))
}

/// Offset of the program's sequence number in a slot.
pub(crate) const HINT_SEQ: usize = offset_of!(HintSlot, program) + offset_of!(FromProgram, seq);
/// Offset of the engine's sequence number in a slot, the first field of the engine's half.
pub(crate) const SAID_SEQ: usize = offset_of!(HintSlot, engine) + offset_of!(FromEngine, seq);
/// Size in bytes of the engine's half of a slot, without its sequence number.
pub(crate) const SAID_BYTES: usize = offset_of!(FromEngine, core_type) + NAME_BYTES - 4;

/// Returns the owner of a slot: TID and start time.
pub(crate) fn owner_of(slot: &[u8]) -> (u32, u64) {
    (
        word(slot, offset_of!(FromProgram, tid)),
        long(slot, offset_of!(FromProgram, started)),
    )
}

/// Returns the hint in the bytes of a slot.
pub(crate) fn hint_of(slot: &[u8]) -> Hint {
    let field = |at| word(slot, at);
    Hint::of(
        field(offset_of!(FromProgram, priority)) as i32,
        field(offset_of!(FromProgram, qos_permille)),
        field(offset_of!(FromProgram, phase)),
        field(offset_of!(FromProgram, workers)),
    )
}

/// Returns the units of work done, from the bytes of a slot.
pub(crate) fn work_of(slot: &[u8]) -> u64 {
    long(slot, offset_of!(FromProgram, work))
}

/// Returns the bytes of an engine's advice after the sequence number; all zeros without advice.
pub(crate) fn bytes_of(advice: Option<&HintAdvice>) -> [u8; SAID_BYTES] {
    let mut bytes = [0; SAID_BYTES];
    let Some(advice) = advice else { return bytes };
    let mut put = |at: usize, field: &[u8]| {
        bytes[at - 4..at - 4 + field.len()].copy_from_slice(field);
    };
    put(offset_of!(FromEngine, rank), &advice.rank.to_ne_bytes());
    put(
        offset_of!(FromEngine, core_types),
        &advice.core_types.to_ne_bytes(),
    );
    put(
        offset_of!(FromEngine, sf),
        &advice.sf.unwrap_or(f64::NAN).to_ne_bytes(),
    );
    put(offset_of!(FromEngine, speed), &advice.speed.to_ne_bytes());
    put(offset_of!(FromEngine, share), &advice.share.to_ne_bytes());
    put(offset_of!(FromEngine, core_type), &advice.name);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_what_version_1_says() {
        let head = [
            offset_of!(PageHead, version),
            offset_of!(PageHead, slot_bytes),
            offset_of!(PageHead, slots),
            offset_of!(PageHead, pid),
        ];
        assert_eq!(
            (head, offset_of!(PageHead, used), size_of::<PageHead>()),
            ([8, 12, 16, 20], 24, 32)
        );
        assert_eq!(
            (SLOT, offset_of!(HintSlot, engine), HINT_SEQ, SAID_SEQ),
            (256, 128, 4, 128)
        );
        let hint = [
            offset_of!(FromProgram, priority),
            offset_of!(FromProgram, phase),
            offset_of!(FromProgram, workers),
        ];
        assert_eq!(
            (
                offset_of!(FromProgram, tid),
                offset_of!(FromProgram, started),
                hint
            ),
            (0, 8, [16, 24, 28])
        );
        assert_eq!(offset_of!(FromProgram, work), 32);
        let said = [
            offset_of!(FromEngine, rank),
            offset_of!(FromEngine, core_types),
            offset_of!(FromEngine, sf),
        ];
        assert_eq!(
            (
                said,
                offset_of!(FromEngine, share),
                offset_of!(FromEngine, core_type)
            ),
            ([4, 8, 16], 32, 40)
        );
        assert_eq!((SAID_BYTES, LENGTH), (68, 4096 + 4096 * 256));
    }

    #[test]
    fn long_names_are_cut_between_letters() {
        let mut advice = HintAdvice {
            epoch: 0,
            rank: 0,
            core_types: 1,
            sf: None,
            speed: 1.0,
            share: 1.0,
            name: HintAdvice::name_of("Cortex-X4"),
        };
        assert_eq!(advice.core_type(), "Cortex-X4");
        advice.name = HintAdvice::name_of(&format!("x{}", "é".repeat(20)));
        assert_eq!(advice.core_type(), format!("x{}", "é".repeat(15)));
    }
}
