//! Callbacks every N events, for C.
//!
//! Input: calls from C. Output: those of [`countersteer_counters::region::Every`]; callbacks are called on demand or by a
//! thread of the library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use countersteer_counters::region::{
    CountingSwitch, Every, MomentWatch, RegionOptions, TriggerMoment,
};

use crate::error::{CFailure, CS_ERROR_ARGUMENT, CS_ERROR_INTERNAL, CS_ERROR_STATE};
use crate::{LastingNames, cs_count, guarded, missing};

/// Timeout of [`cs_every_poll`]: wait without a limit.
pub const CS_EVERY_FOREVER: c_int = -1;

/// Counters that are read every N events.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct cs_every {
    state: Mutex<EveryState>,
    control: CountingSwitch,
    fd: c_int,
}

enum EveryState {
    Idle(Every),
    Watched(#[allow(dead_code, reason = "ends when dropped")] MomentWatch),
    /// During a change, and after a failure.
    Broken,
}

/// Counts at the time when the number of events was reached.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cs_moment {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// TID of the thread.
    pub tid: c_int,
    /// Number of counts.
    pub n: c_uint,
    /// Counts of each event since the last moment; valid during the call.
    pub counts: *const cs_count,
}

/// Callback for each moment.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type cs_callback = Option<unsafe extern "C" fn(moment: *const cs_moment, user: *mut c_void)>;

/// Callback with the caller's pointer, to be moved to another thread.
struct Callback {
    call: unsafe extern "C" fn(*const cs_moment, *mut c_void),
    user: *mut c_void,
    names: Vec<LastingNames>,
    counts: Vec<cs_count>,
}

// SAFETY: the pointer is the caller's; the header states that another thread passes it on.
unsafe impl Send for Callback {}

impl Callback {
    fn new(call: cs_callback, user: *mut c_void) -> Result<Self, CFailure> {
        let call = call.ok_or_else(|| missing("callback"))?;
        Ok(Self {
            call,
            user,
            names: Vec::new(),
            counts: Vec::new(),
        })
    }

    fn tell(&mut self, moment: &TriggerMoment<'_>) {
        // The core type of a moment may change from one to the next.
        self.names.clear();
        self.names
            .extend(moment.counts.iter().map(LastingNames::of));
        self.counts.clear();
        self.counts.extend(
            self.names
                .iter()
                .zip(moment.counts)
                .map(|(names, count)| names.count(count)),
        );
        let tid = moment.thread as c_int;
        let n = self.counts.len() as c_uint;
        let c_moment = cs_moment {
            at_ns: moment.at_ns,
            tid,
            n,
            counts: self.counts.as_ptr(),
        };
        // SAFETY: the caller gave a function of this type, and `c_moment` and its referents outlive the call.
        unsafe { (self.call)(&raw const c_moment, self.user) };
    }
}

/// # Safety
/// As for [`cs_every_open`].
unsafe fn open(
    events: *const c_char,
    number: u64,
    thread: Option<u32>,
    flags: c_uint,
    out: *mut *mut cs_every,
) -> Result<c_int, CFailure> {
    if out.is_null() {
        return Err(missing("out"));
    }
    // SAFETY: not null, and writable for a pointer, by the caller's contract.
    unsafe { out.write(ptr::null_mut()) };
    if events.is_null() {
        return Err(missing("events"));
    }
    if flags != 0 || number == 0 {
        return Err(CFailure::new(
            CS_ERROR_ARGUMENT,
            "every is at least 1 event, and flags are 0",
        ));
    }
    // SAFETY: not null, and a C string, by the caller's contract.
    let events = unsafe { CStr::from_ptr(events) }.to_str();
    let events =
        events.map_err(|_| CFailure::new(CS_ERROR_ARGUMENT, "the event string is no UTF-8"))?;
    let every = Every::open(
        events,
        number,
        RegionOptions {
            thread,
            inherit: false,
        },
    )?;
    let control = every.control();
    let fd = every.fd().as_raw_fd();
    let opened = cs_every {
        state: Mutex::new(EveryState::Idle(every)),
        control,
        fd,
    };
    // SAFETY: as above.
    unsafe { out.write(Box::into_raw(Box::new(opened))) };
    Ok(0)
}

/// # Safety
/// `every` is null or from [`cs_every_open`] and not closed.
unsafe fn shell<'a>(every: *const cs_every) -> Result<&'a cs_every, CFailure> {
    // SAFETY: by the caller's contract.
    unsafe { every.as_ref() }.ok_or_else(|| missing("every"))
}

fn locked(every: &cs_every) -> Result<MutexGuard<'_, EveryState>, CFailure> {
    match every.state.try_lock() {
        Ok(state) => Ok(state),
        Err(TryLockError::WouldBlock) => Err(CFailure::new(
            CS_ERROR_STATE,
            "another thread takes moments now; one at a time may",
        )),
        Err(TryLockError::Poisoned(_)) => Err(CFailure::new(
            CS_ERROR_INTERNAL,
            "unusable since a defect; close it and open another",
        )),
    }
}

/// Opens counters of the calling thread that are read whenever the first of the events has happened `number` times.
///
/// # Safety
/// `events` is null or a C string, `out` null or writable for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_open(
    events: *const c_char,
    number: u64,
    flags: c_uint,
    out: *mut *mut cs_every,
) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| unsafe { open(events, number, None, flags, out) })
}

/// Opens such counters of another thread, by its TID.
///
/// # Safety
/// As for [`cs_every_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_open_thread(
    events: *const c_char,
    number: u64,
    tid: c_int,
    flags: c_uint,
    out: *mut *mut cs_every,
) -> c_int {
    guarded(|| {
        let thread = crate::thread(tid)?;
        // SAFETY: by the caller's contract.
        unsafe { open(events, number, Some(thread), flags, out) }
    })
}

/// Starts counting.
///
/// # Safety
/// `every` is null or from [`cs_every_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_start(every: *mut cs_every) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(unsafe { shell(every) }?.control.on().map(|()| 0)?))
}

/// Stops counting.
///
/// # Safety
/// As for [`cs_every_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_stop(every: *mut cs_every) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(unsafe { shell(every) }?.control.off().map(|()| 0)?))
}

/// Descriptor that becomes readable when there are moments.
///
/// # Safety
/// As for [`cs_every_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_fd(every: *mut cs_every) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(unsafe { shell(every) }?.fd))
}

/// Waits up to `timeout_ms` milliseconds for moments, and calls the callback for each; returns their number.
///
/// # Safety
/// As for [`cs_every_start`]; `callback` is null or a function of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_poll(
    every: *mut cs_every,
    timeout_ms: c_int,
    callback: cs_callback,
    user: *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        let mut state = locked(unsafe { shell(every) }?)?;
        let mut callback = Callback::new(callback, user)?;
        let EveryState::Idle(every) = &mut *state else {
            return Err(CFailure::new(
                CS_ERROR_STATE,
                "a thread of the library takes the moments (cs_every_watch)",
            ));
        };
        let most = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        every.wait(most)?;
        Ok(c_int::try_from(every.take(|moment| callback.tell(moment))).unwrap_or(c_int::MAX))
    })
}

/// Makes a thread of the library call the callback for each moment, until closing.
///
/// # Safety
/// As for [`cs_every_poll`]; `user` may be used by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_watch(
    every: *mut cs_every,
    callback: cs_callback,
    user: *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        let mut state = locked(unsafe { shell(every) }?)?;
        let mut callback = Callback::new(callback, user)?;
        match std::mem::replace(&mut *state, EveryState::Broken) {
            EveryState::Idle(every) => {
                *state = EveryState::Watched(every.watch(move |moment| callback.tell(moment))?);
                Ok(0)
            }
            other => {
                *state = other;
                Err(CFailure::new(CS_ERROR_STATE, "it is watched already"))
            }
        }
    })
}

/// Number of moments that did not fit into the ring.
///
/// # Safety
/// As for [`cs_every_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_lost(every: *mut cs_every) -> c_int {
    // SAFETY: by the caller's contract.
    guarded(|| Ok(c_int::try_from(unsafe { shell(every) }?.control.lost()).unwrap_or(c_int::MAX)))
}

/// Passes the remaining moments to a watch, and closes the counters. Null is allowed and has no effect.
///
/// # Safety
/// `every` is null or from [`cs_every_open`], not closed, used by no other thread, and this is not called by a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_every_close(every: *mut cs_every) {
    if !every.is_null() {
        guarded(|| {
            // SAFETY: not null, from `Box::into_raw`, and without another owner from now on, by the caller's contract.
            drop(unsafe { Box::from_raw(every) });
            Ok(0)
        });
    }
}
