//! Virtual counters, for C: energy, cache occupancy, sensors, pressure.
//!
//! Input: calls from C. Output: those of [`countersteer_sysfs::sensors::SensorSet`].

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};

use countersteer_sysfs::sensors::{SensorPlace, SensorSet, SensorValue};

use crate::error::{CFailure, CS_ERROR_ARGUMENT, CS_ERROR_EVENTS, CS_ERROR_STATE};
use crate::{guarded, missing};

/// Open virtual counters.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct cs_meters {
    state: Mutex<MeterState>,
}

struct MeterState {
    meters: SensorSet,
    /// Strings of the last read: name, unit, place.
    texts: Vec<[CString; 3]>,
}

/// Value of a virtual counter.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cs_value {
    /// Virtual counter; valid until the next read, as are all strings here.
    pub name: *const c_char,
    /// Unit of the value.
    pub unit: *const c_char,
    /// Zone or sensor; `machine` for all of it, empty for a CPU or a thread.
    pub place: *const c_char,
    /// TID if the value is of a thread; else -1.
    pub tid: c_int,
    /// CPU if the value is of a CPU; else -1.
    pub cpu: c_int,
    /// Difference since the last read, or present value.
    pub value: f64,
}

fn texts(value: &SensorValue) -> [CString; 3] {
    let place = match &value.place {
        SensorPlace::Machine => "machine",
        SensorPlace::Zone { name, .. } => name,
        SensorPlace::Cpu(_) | SensorPlace::Thread(_) => "",
    };
    [value.column.name, value.column.unit, place].map(|text| CString::new(text).unwrap_or_default())
}

fn c_value(value: &SensorValue, texts: &[CString; 3]) -> cs_value {
    let (tid, cpu) = match &value.place {
        SensorPlace::Thread(tid) => (*tid as c_int, -1),
        SensorPlace::Cpu(cpu) => (-1, cpu.0 as c_int),
        SensorPlace::Machine | SensorPlace::Zone { .. } => (-1, -1),
    };
    let [name, unit, place] = texts.each_ref().map(|t| t.as_ptr());
    cs_value {
        name,
        unit,
        place,
        tid,
        cpu,
        value: value.value,
    }
}

/// # Safety
/// `meters` is null or from [`cs_meters_open`] and not closed.
unsafe fn used<'a>(meters: *const cs_meters) -> Result<MutexGuard<'a, MeterState>, CFailure> {
    // SAFETY: by the caller's contract.
    let meters = unsafe { meters.as_ref() }.ok_or_else(|| missing("meters"))?;
    match meters.state.try_lock() {
        Ok(state) => Ok(state),
        Err(TryLockError::WouldBlock) => Err(CFailure::new(
            CS_ERROR_STATE,
            "another thread reads at this moment; give each thread its own",
        )),
        // Each read starts from the beginning, so a panic in the last one does not matter.
        Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
    }
}

/// Opens virtual counters by name, separated by commas; differences count from here.
///
/// # Safety
/// `names` is null or a C string, `out` null or writable for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_meters_open(names: *const c_char, out: *mut *mut cs_meters) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(missing("out"));
        }
        // SAFETY: not null, and writable for a pointer, by the caller's contract.
        unsafe { out.write(ptr::null_mut()) };
        if names.is_null() {
            return Err(missing("names"));
        }
        // SAFETY: not null, and a C string, by the caller's contract.
        let names = unsafe { CStr::from_ptr(names) }.to_str();
        let names =
            names.map_err(|_| CFailure::new(CS_ERROR_ARGUMENT, "the names are no UTF-8"))?;
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        let meters = SensorSet::open(Path::new("/"), &names);
        let meters = meters.map_err(|why| CFailure::new(CS_ERROR_EVENTS, why.to_string()))?;
        let opened = cs_meters {
            state: Mutex::new(MeterState {
                meters,
                texts: Vec::new(),
            }),
        };
        // SAFETY: as above.
        unsafe { out.write(Box::into_raw(Box::new(opened))) };
        Ok(0)
    })
}

/// Starts observing a thread, for values by thread.
///
/// # Safety
/// `meters` is null or from [`cs_meters_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_meters_follow(meters: *mut cs_meters, tid: c_int) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        unsafe { used(meters) }?.meters.follow(crate::thread(tid)?);
        Ok(0)
    })
}

/// Stops observing a thread.
///
/// # Safety
/// As for [`cs_meters_follow`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_meters_leave(meters: *mut cs_meters, tid: c_int) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        unsafe { used(meters) }?.meters.leave(crate::thread(tid)?);
        Ok(0)
    })
}

/// Reads all, and writes the first `n` values to `out`; returns the number of all values.
///
/// # Safety
/// As for [`cs_meters_follow`]; `out` has room for `n` values, or `n` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_meters_read(
    meters: *mut cs_meters,
    out: *mut cs_value,
    n: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        let mut state = unsafe { used(meters) }?;
        if out.is_null() && n > 0 {
            return Err(missing("out"));
        }
        let MeterState {
            meters,
            texts: kept,
        } = &mut *state;
        let values = meters.read();
        *kept = values.iter().map(texts).collect();
        for (place, (value, texts)) in values.iter().zip(&*kept).enumerate().take(n) {
            // SAFETY: there is room for `n`, by the caller's contract, and `place` is less.
            unsafe { out.add(place).write(c_value(value, texts)) };
        }
        Ok(values.len() as c_int)
    })
}

/// Closes the virtual counters, and undoes their changes of the machine. Null is allowed and has no effect.
///
/// # Safety
/// `meters` is null or from [`cs_meters_open`], not closed, and used by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_meters_close(meters: *mut cs_meters) {
    if !meters.is_null() {
        guarded(|| {
            // SAFETY: not null, from `Box::into_raw`, and without another owner from now on, by the caller's contract.
            drop(unsafe { Box::from_raw(meters) });
            Ok(0)
        });
    }
}
