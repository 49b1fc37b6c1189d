//! libcountersteer: counters around a region of code, for C and languages that call C.
//!
//! Stage: the border. Input: calls from C, whose arguments are not trusted. Output: those of [`countersteer_counters::region`],
//! and of virtual counters in `meters`, and pages in `pages`.
//!
//! `include/countersteer.h` documents the API for C programs, and this file implements it. Pointers are checked for null, and
//! panics end here as an error. A region that two threads use at once refuses the second.

#![warn(missing_docs)]

mod error;
mod every;
mod meters;
mod pages;

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};

use countersteer_counters::region::{EventCount, Region, RegionOptions};

use error::{CFailure, keep};
pub use error::{
    CS_ERROR_ARGUMENT, CS_ERROR_EVENTS, CS_ERROR_INTERNAL, CS_ERROR_PERMISSION, CS_ERROR_REFUSED,
    CS_ERROR_STATE, CS_ERROR_SYSTEM,
};
pub use every::{
    CS_EVERY_FOREVER, cs_callback, cs_every, cs_every_close, cs_every_fd, cs_every_lost,
    cs_every_open, cs_every_open_thread, cs_every_poll, cs_every_start, cs_every_stop,
    cs_every_watch, cs_moment,
};
pub use meters::{
    cs_meters, cs_meters_close, cs_meters_follow, cs_meters_leave, cs_meters_open, cs_meters_read,
    cs_value,
};
pub use pages::{
    CS_PHASE_BLOCKED, CS_PHASE_RUNNING, CS_PHASE_SPINNING, cs_advice, cs_page, cs_page_close,
    cs_page_epoch, cs_page_open, cs_page_phase, cs_page_read, cs_page_tell, cs_page_work, cs_told,
};

/// Flag of [`cs_open`]: also count threads and processes created from then on.
pub const CS_INHERIT: c_uint = 1;

/// Open counters of a thread.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct cs_region {
    region: Mutex<Region>,
    names: Vec<LastingNames>,
}

/// Strings that outlive every read.
struct LastingNames {
    name: CString,
    unit: CString,
    core_type: Option<CString>,
}

/// Count of an event.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cs_count {
    /// Event; valid until the region is closed, as are all strings here.
    pub name: *const c_char,
    /// Unit of the value; empty for plain counts.
    pub unit: *const c_char,
    /// Core type; null if that makes no difference.
    pub core_type: *const c_char,
    /// Count; 0 if it is not available.
    pub value: u64,
    /// Nanoseconds during which it was enabled.
    pub enabled_ns: u64,
    /// Nanoseconds during which it counted.
    pub running_ns: u64,
    /// 1, or 0 if there was no counter for it.
    pub available: u32,
    /// 0.
    pub reserved: u32,
}

impl LastingNames {
    fn of(count: &EventCount) -> Self {
        let text = |t: &str| CString::new(t).unwrap_or_default();
        Self {
            name: text(&count.name),
            unit: text(&count.unit),
            core_type: count.core_type.as_deref().map(text),
        }
    }

    fn count(&self, count: &EventCount) -> cs_count {
        cs_count {
            name: self.name.as_ptr(),
            unit: self.unit.as_ptr(),
            core_type: self.core_type.as_ref().map_or(ptr::null(), |t| t.as_ptr()),
            value: count.value.unwrap_or(0),
            enabled_ns: count.enabled_ns,
            running_ns: count.running_ns,
            available: count.value.is_some().into(),
            reserved: 0,
        }
    }
}

/// Runs the body of a call; converts every failure and panic to a code and a message.
fn guarded(run: impl FnOnce() -> Result<c_int, CFailure>) -> c_int {
    let caught = catch_unwind(AssertUnwindSafe(run));
    let defect = |_| {
        Err(CFailure::new(
            CS_ERROR_INTERNAL,
            "a defect of libcountersteer; please report it",
        ))
    };
    caught.unwrap_or_else(defect).unwrap_or_else(keep)
}

fn missing(what: &str) -> CFailure {
    CFailure::new(
        CS_ERROR_ARGUMENT,
        format!("{what} is a null pointer; pass one from cs_open or to your own data"),
    )
}

/// Checks a TID.
fn thread(tid: c_int) -> Result<u32, CFailure> {
    let message = "a thread's number is above 0, as gettid(2) gives it";
    let thread = u32::try_from(tid).ok().filter(|t| *t > 0);
    thread.ok_or_else(|| CFailure::new(CS_ERROR_ARGUMENT, message))
}

/// Region behind a pointer, for this call only.
///
/// # Safety
/// `region` is null or from [`cs_open`] and not closed.
unsafe fn used<'a>(
    region: *const cs_region,
) -> Result<(&'a cs_region, MutexGuard<'a, Region>), CFailure> {
    // SAFETY: by the caller's contract.
    let region = unsafe { region.as_ref() }.ok_or_else(|| missing("region"))?;
    match region.region.try_lock() {
        Ok(lock) => Ok((region, lock)),
        Err(TryLockError::WouldBlock) => {
            let message = "another thread uses the region at this moment; give each thread its own";
            Err(CFailure::new(CS_ERROR_STATE, message))
        }
        Err(TryLockError::Poisoned(_)) => Err(CFailure::new(
            CS_ERROR_INTERNAL,
            "the region is unusable since a defect; close it and open another",
        )),
    }
}

/// # Safety
/// As for [`cs_open`].
unsafe fn open(
    events: *const c_char,
    thread: Option<u32>,
    flags: c_uint,
    out: *mut *mut cs_region,
) -> Result<c_int, CFailure> {
    if out.is_null() {
        return Err(missing("out"));
    }
    // SAFETY: not null, and writable for a pointer, by the caller's contract.
    unsafe { out.write(ptr::null_mut()) };
    if events.is_null() {
        return Err(missing("events"));
    }
    if flags & !CS_INHERIT != 0 {
        return Err(CFailure::new(
            CS_ERROR_ARGUMENT,
            format!("flags {flags:#x} are unknown; 0 and CS_INHERIT are not"),
        ));
    }
    // SAFETY: not null, and a C string, by the caller's contract.
    let events = unsafe { CStr::from_ptr(events) }.to_str();
    let events =
        events.map_err(|_| CFailure::new(CS_ERROR_ARGUMENT, "the event string is no UTF-8"))?;
    let region = Region::open(
        events,
        RegionOptions {
            thread,
            inherit: flags & CS_INHERIT != 0,
        },
    )?;
    let names = region.counts().iter().map(LastingNames::of).collect();
    // SAFETY: as above.
    unsafe {
        out.write(Box::into_raw(Box::new(cs_region {
            region: Mutex::new(region),
            names,
        })))
    };
    Ok(0)
}

/// Opens counters of the calling thread.
///
/// # Safety
/// `events` is null or a C string, `out` null or writable for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_open(
    events: *const c_char,
    flags: c_uint,
    out: *mut *mut cs_region,
) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| unsafe { open(events, None, flags, out) })
}

/// Opens counters of another thread, by its TID.
///
/// # Safety
/// As for [`cs_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_open_thread(
    events: *const c_char,
    tid: c_int,
    flags: c_uint,
    out: *mut *mut cs_region,
) -> c_int {
    guarded(|| {
        let thread = thread(tid)?;
        // SAFETY: by the caller's contract.
        unsafe { open(events, Some(thread), flags, out) }
    })
}

/// Begins an interval.
///
/// # Safety
/// `region` is null or from [`cs_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_start(region: *mut cs_region) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(unsafe { used(region) }?.1.start().map(|()| 0)?))
}

/// Ends an interval.
///
/// # Safety
/// As for [`cs_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_stop(region: *mut cs_region) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(unsafe { used(region) }?.1.stop().map(|()| 0)?))
}

/// Clears the counts.
///
/// # Safety
/// As for [`cs_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_reset(region: *mut cs_region) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(unsafe { used(region) }?.1.reset().map(|()| 0)?))
}

/// Writes the first `n` counts to `out`; returns the number of all counts.
///
/// # Safety
/// As for [`cs_start`]; `out` has room for `n` counts, or `n` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_read(region: *mut cs_region, out: *mut cs_count, n: usize) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        let (shell, mut region) = unsafe { used(region) }?;
        if out.is_null() && n > 0 {
            return Err(missing("out"));
        }
        let counts = if n == 0 {
            region.counts()
        } else {
            region.read()?
        };
        for (place, (names, count)) in shell.names.iter().zip(counts).enumerate().take(n) {
            // SAFETY: there is room for `n`, by the caller's contract, and `place` is less.
            unsafe { out.add(place).write(names.count(count)) };
        }
        Ok(counts.len() as c_int)
    })
}

/// Returns 1 if only user mode is counted since more is not permitted, else 0.
///
/// # Safety
/// As for [`cs_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_user_only(region: *mut cs_region) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(unsafe { used(region) }?.1.user_only().into()))
}

/// Closes the counters. Null is allowed and has no effect.
///
/// # Safety
/// `region` is null or from [`cs_open`], not closed, and used by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_close(region: *mut cs_region) {
    if !region.is_null() {
        guarded(|| {
            // SAFETY: not null, from `Box::into_raw`, and without another owner from now on, by the caller's contract.
            drop(unsafe { Box::from_raw(region) });
            Ok(0)
        });
    }
}

/// Message of the calling thread's last failure; an empty string before the first.
#[unsafe(no_mangle)]
pub extern "C" fn cs_strerror() -> *const c_char {
    error::last()
}

/// Version of the library, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn cs_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
