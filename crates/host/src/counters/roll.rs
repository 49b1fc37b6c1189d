//! A roll of threads that is kept inside the kernel: who lives, and how long families ran.
//!
//! Input: a [`Roll`], which somebody else loads into the kernel. Output: births, programs and ends, and running times. Events of
//! perf tell the same, but whatever of theirs is inherited is exchanged whenever threads take turns on a CPU; with a roll nothing
//! happens then. It knows no counts besides that time.

use std::io;
use std::os::fd::BorrowedFd;

use countersteer_core::units::Nanos;

use super::inside::{Hear, OfScheduler};
use super::resolve::Resolved;

/// A thread that was there first, with all that it gave birth to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// How long it ran since it entered; those that run at this moment a tick less, at most, and one that ran when it entered a tick
    /// more.
    pub ran: Nanos,
    /// Threads that are just ending, and go on running for that, or may be missing in the sum for a moment.
    pub leaving: u64,
}

/// What keeps a roll inside the kernel; dropping it ends that.
pub trait Roll: Send {
    /// Puts a thread on the roll that is there already, with what it gives birth to, as the family of this number; whether it is
    /// there still.
    ///
    /// # Errors
    /// There is no room, or the kernel refuses.
    fn enter(&mut self, tid: u32, family: u32) -> io::Result<bool>;

    /// Tells what befell threads since the last call, in the order of time.
    fn hear(&mut self, hear: Hear<'_>);

    /// Looks at families, one after the other.
    ///
    /// # Errors
    /// The kernel refuses.
    fn families(&mut self, wanted: &[u32], take: &mut dyn FnMut(u32, Family)) -> io::Result<()>;

    fn forget(&mut self, family: u32);

    /// Births and ends that nobody has been told of, since there was no room: what families ran is not all known any more.
    fn lost(&self) -> u64;

    /// Something to read here means that [`Roll::hear`] had better be called soon.
    fn file(&self) -> BorrowedFd<'_>;
}

/// Loads what keeps a roll, or says why not.
pub type LoadRoll = fn() -> Result<Box<dyn Roll>, String>;

/// How long a thread has run, if it is there; a tick less, if it runs at this moment.
#[must_use]
pub fn ran(tid: u32) -> Option<Nanos> {
    let all = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    all.split_whitespace().next()?.parse().ok().map(Nanos)
}

/// Whether a roll knows all that is to be counted: how long threads ran, on CPUs that are all alike.
pub(super) fn suffices(sets: &[Vec<Resolved>], core_types: usize) -> bool {
    let [set] = sets else { return false };
    let [event] = set.as_slice() else {
        return false;
    };
    core_types == 1 && OfScheduler::of(event) == Some(OfScheduler::Clock)
}
