//! Reading of a hardware counter without the kernel, from the page that the kernel shares with the process that opened the
//! event.
//!
//! Input: the page of an event of the calling thread. Output: its count and times, or `None` if only the kernel knows them.
//!
//! The kernel changes a sequence number (`lock`) with each change of the page. Values that were read between two equal
//! numbers are consistent. The changes happen on the CPU that reads, when it is interrupted, so only the compiler must be
//! kept from reordering.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crate::perf::sys::abi::perf_event_mmap_page as Layout;

/// Count of an event at one instant, since the event was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountMoment {
    pub(super) value: u64,
    pub(super) enabled_ns: u64,
    pub(super) running_ns: u64,
}

pub(super) trait Hardware {
    /// Returns the value of a performance counter. `index` is the kernel's index less one.
    fn counter(&self, index: u32) -> u64;
    /// Returns the processor's time stamp counter, from which times are computed.
    fn clock(&self) -> u64;
}

/// Hardware of the processor that runs this code.
pub(super) struct Processor;

/// True if this program can read the counters of the processor's architecture.
pub(super) const READABLE: bool = cfg!(target_arch = "x86_64");

#[cfg(target_arch = "x86_64")]
impl Hardware for Processor {
    fn counter(&self, index: u32) -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: this is run only for counters that programs may read according to the kernel (`cap_user_rdpmc`).
        unsafe {
            std::arch::asm!("rdpmc", in("ecx") index, out("eax") low, out("edx") high, options(nomem, nostack));
        }
        u64::from(high) << 32 | u64::from(low)
    }

    fn clock(&self) -> u64 {
        // SAFETY: every processor of this architecture has this instruction.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Hardware for Processor {
    fn counter(&self, _: u32) -> u64 {
        0
    }

    fn clock(&self) -> u64 {
        0
    }
}

/// Number of forks between the process that loaded this library and the present process. A child does not inherit pages.
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Mapped page of an open event.
#[derive(Debug)]
pub(super) struct EventPage {
    base: *const Layout,
    length: usize,
    forks: u64,
}

// SAFETY: the mapping belongs to this value alone and may be read from any thread. The caller must know whose counters it
// contains.
unsafe impl Send for EventPage {}

impl EventPage {
    /// Maps the page of an event.
    pub(super) fn map(fd: &OwnedFd) -> io::Result<Self> {
        static WATCH: Once = Once::new();
        // SAFETY: the handler is a function that lives as long as the library and only adds to an atomic.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        });
        let length =
            nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
        // SAFETY: this is a new mapping at an address of the kernel's choice; it affects no existing mapping.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            length,
            forks: FORKS.load(Ordering::Relaxed),
        })
    }

    /// Reads the event's count; `None` if only the kernel knows it. Only the thread that the event counts may call this.
    pub(super) fn read(&self) -> Option<CountMoment> {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the mapping exists, since this is not a child process that lacks it, and is as large as its layout.
        unsafe { read(self.base, &Processor) }
    }
}

impl Drop for EventPage {
    fn drop(&mut self) {
        // In a child process, another mapping may be at this address by now.
        if self.forks == FORKS.load(Ordering::Relaxed) {
            // SAFETY: the mapping was made with this address and length, and no reference into it is left.
            unsafe { libc::munmap(self.base.cast_mut().cast(), self.length) };
        }
    }
}

/// Bit of the page's capabilities: programs may read the counter.
const MAY_READ: u64 = 1 << 2;
/// Bit of the page's capabilities: programs may compute times.
const MAY_TIME: u64 = 1 << 3;
/// Limit on the number of attempts. A page that changes faster than it is read is left to the kernel.
const ATTEMPTS: u32 = 100;

/// Reads the count of an event from its page; `None` if only the kernel knows it.
///
/// # Safety
/// The caller guarantees that `page` points to a whole readable page.
unsafe fn read(page: *const Layout, hardware: &impl Hardware) -> Option<CountMoment> {
    for _ in 0..ATTEMPTS {
        // SAFETY: the caller guarantees that the page is readable. The kernel may change the fields, so each is read once
        // and as volatile.
        let lock = unsafe { (&raw const (*page).lock).read_volatile() };
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the caller guarantees that the page is readable.
        let moment = unsafe { read_once(page, hardware) };
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the caller guarantees that the page is readable.
        if lock == unsafe { (&raw const (*page).lock).read_volatile() } {
            return moment;
        }
    }
    None
}

/// Makes one attempt to read the page. The result may mix two states of the page.
///
/// # Safety
/// Conditions of [`read`] apply.
unsafe fn read_once(page: *const Layout, hardware: &impl Hardware) -> Option<CountMoment> {
    macro_rules! field {
        ($($name:ident).+) => {
            // SAFETY: the caller guarantees that the page is readable; each field lies within it and is aligned.
            unsafe { (&raw const (*page).$($name).+).read_volatile() }
        };
    }
    let allowed = field!(__bindgen_anon_1.capabilities);
    // Index 0 means that the event has no hardware counter at present.
    let index = field!(index).checked_sub(1)?;
    if allowed & MAY_READ == 0 || allowed & MAY_TIME == 0 {
        return None;
    }
    let since = elapsed(
        hardware.clock(),
        field!(time_shift),
        field!(time_mult),
        field!(time_offset),
    );
    let count = signed(hardware.counter(index), field!(pmc_width))?;
    Some(CountMoment {
        value: field!(offset).wrapping_add(count) as u64,
        enabled_ns: field!(time_enabled).wrapping_add(since),
        running_ns: field!(time_running).wrapping_add(since),
    })
}

/// Returns the nanoseconds since the kernel wrote the page, from a clock and the kernel's factor for it.
fn elapsed(clock: u64, shift: u16, factor: u32, offset: u64) -> u64 {
    let scaled = (u128::from(clock) * u128::from(factor))
        .checked_shr(shift.into())
        .unwrap_or(0);
    offset.wrapping_add(scaled as u64)
}

/// Sign-extends a counter value of `width` bits; `None` for an invalid width. Counters are narrower than a word and count
/// up from below zero.
fn signed(counter: u64, width: u16) -> Option<i64> {
    let unused = 64u32.checked_sub(width.into()).filter(|_| width > 0)?;
    Some((counter << unused) as i64 >> unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        counter: u64,
        clock: u64,
    }

    impl Hardware for Fake {
        fn counter(&self, index: u32) -> u64 {
            assert_eq!(index, 2, "the kernel's index is one too high");
            self.counter
        }

        fn clock(&self) -> u64 {
            self.clock
        }
    }

    fn page(capabilities: u64, index: u32) -> Box<Layout> {
        // SAFETY: zero is a value of all its fields.
        let mut page: Box<Layout> = Box::new(unsafe { std::mem::zeroed() });
        page.__bindgen_anon_1.capabilities = capabilities;
        page.index = index;
        page.offset = 0x1_0000_0000_0000;
        page.pmc_width = 48;
        page.time_enabled = 5_000;
        page.time_running = 3_000;
        page.time_shift = 10;
        page.time_mult = 512;
        page.time_offset = 0u64.wrapping_sub(1_000);
        page
    }

    fn moment(page: &Layout, counter: u64) -> Option<CountMoment> {
        // SAFETY: a whole layout.
        unsafe {
            read(
                page,
                &Fake {
                    counter,
                    clock: 2_200,
                },
            )
        }
    }

    #[test]
    fn a_count_is_the_kernels_part_and_the_counters() {
        let page = page(MAY_READ | MAY_TIME, 3);
        let expected = CountMoment {
            value: 0x1_0000_0000_0007,
            enabled_ns: 5_100,
            running_ns: 3_100,
        };
        assert_eq!(moment(&page, 7), Some(expected));
        // A counter that was set to overflow soon is still below zero.
        assert_eq!(
            moment(&page, 0xffff_ffff_fff0).map(|m| m.value),
            Some(0xffff_ffff_fff0)
        );
    }

    #[test]
    fn the_kernel_is_asked_where_the_page_does_not_know() {
        assert_eq!(
            moment(&page(MAY_READ | MAY_TIME, 0), 7),
            None,
            "the event has no counter just now"
        );
        assert_eq!(
            moment(&page(MAY_TIME, 3), 7),
            None,
            "counters may not be read"
        );
        assert_eq!(moment(&page(MAY_READ, 3), 7), None, "times cannot be read");
    }

    #[test]
    fn clocks_of_any_age_do_not_overflow() {
        assert_eq!(
            elapsed(u64::MAX, 32, u32::MAX, 1),
            ((u128::from(u64::MAX) * u128::from(u32::MAX)) >> 32) as u64 + 1
        );
        assert_eq!(signed(7, 0), None);
        assert_eq!(signed(u64::MAX, 64), Some(-1));
    }
}
