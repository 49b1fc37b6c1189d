//! Pages that threads share with the engine that steers them, for C.
//!
//! Input: calls from C. Output: those of [`countersteer_live::hint_page`]. A page is its memory's address, which stays valid,
//! so that writing and reading cost no more than the loads and stores.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr;

use countersteer_live::hint_page::{HintAdvice, HintPage, PageError};
use countersteer_model::hint::{Hint, MOST_PRIORITY, PHASES};

use crate::error::{
    CFailure, CS_ERROR_ARGUMENT, CS_ERROR_REFUSED, CS_ERROR_STATE, CS_ERROR_SYSTEM,
};
use crate::{guarded, missing};

/// The thread works.
pub const CS_PHASE_RUNNING: c_uint = 0;
/// The thread waits, and uses CPU time meanwhile.
pub const CS_PHASE_SPINNING: c_uint = 1;
/// The thread waits in the kernel, or is about to.
pub const CS_PHASE_BLOCKED: c_uint = 2;

/// Page of a thread.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct cs_page {
    _opaque: [u8; 0],
}

/// Hint of a program about a thread.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct cs_told {
    /// Priority from -10 to 10, relative to the program's other threads; each step is a factor of 1.25 in weight.
    pub priority: c_int,
    /// Sufficient part of its full speed, in thousandths; 0: not specified.
    pub qos_permille: c_uint,
    /// `CS_PHASE_...`.
    pub phase: c_uint,
    /// Number of threads that share its work; 0: not specified.
    pub workers: c_uint,
}

/// Advice of an engine to a thread.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cs_advice {
    /// Changes whenever any other field does.
    pub epoch: u32,
    /// Place of the core type among those of the machine; 0 is the fastest.
    pub rank: u32,
    /// Number of core types of the machine.
    pub core_types: u32,
    /// 0.
    pub reserved: u32,
    /// Speed on the fastest type over that on the slowest; NaN if unknown.
    pub sf: f64,
    /// Speed on its core type over that on the slowest.
    pub speed: f64,
    /// Share of a CPU's time.
    pub share: f64,
    /// Name of the core type.
    pub core_type: [c_char; 32],
}

impl From<PageError> for CFailure {
    fn from(error: PageError) -> Self {
        let code = match &error {
            PageError::System { .. } | PageError::Proc(_) => CS_ERROR_SYSTEM,
            PageError::Descriptor | PageError::Full => CS_ERROR_REFUSED,
            PageError::Ending => CS_ERROR_STATE,
        };
        Self::new(code, error.to_string())
    }
}

/// # Safety
/// `page` is null or from [`cs_page_open`].
unsafe fn used(page: *const cs_page) -> Result<HintPage, CFailure> {
    // SAFETY: by the caller's contract.
    unsafe { HintPage::from_raw(page.cast()) }.ok_or_else(|| missing("page"))
}

fn shown(advice: &HintAdvice) -> cs_advice {
    let mut core_type = [0; 32];
    // The last byte stays 0.
    core_type
        .iter_mut()
        .zip(advice.core_type().bytes().take(31))
        .for_each(|(to, from)| *to = from as c_char);
    cs_advice {
        epoch: advice.epoch,
        rank: advice.rank,
        core_types: advice.core_types,
        reserved: 0,
        sf: advice.sf.unwrap_or(f64::NAN),
        speed: advice.speed,
        share: advice.share,
        core_type,
    }
}

/// Opens the calling thread's page, which is made if it has none.
///
/// # Safety
/// `out` is null or writable for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_page_open(out: *mut *mut cs_page) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(missing("out"));
        }
        // SAFETY: not null, and writable for a pointer, by the caller's contract.
        unsafe { out.write(ptr::null_mut()) };
        let page = HintPage::open()?;
        // SAFETY: as above.
        unsafe { out.write(page.into_raw().cast_mut().cast()) };
        Ok(0)
    })
}

/// Writes the whole hint.
///
/// # Safety
/// `page` is null or from [`cs_page_open`], `hint` null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_page_tell(page: *mut cs_page, hint: *const cs_told) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        let page = unsafe { used(page) }?;
        // SAFETY: by the caller's contract.
        let hint = unsafe { hint.as_ref() }.ok_or_else(|| missing("hint"))?;
        let most = c_int::from(MOST_PRIORITY);
        if !(-most..=most).contains(&hint.priority)
            || hint.qos_permille > 1000
            || hint.phase as usize >= PHASES.len()
        {
            let why =
                "priority is -10 to 10, qos_permille 0 to 1000, and phase one of CS_PHASE_...";
            return Err(CFailure::new(CS_ERROR_ARGUMENT, why));
        }
        page.tell(&Hint::of(
            hint.priority,
            hint.qos_permille,
            hint.phase,
            hint.workers,
        ));
        Ok(0)
    })
}

/// Writes only the phase of the thread.
///
/// # Safety
/// `page` is null or from [`cs_page_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_page_phase(page: *mut cs_page, phase: c_uint) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        let page = unsafe { used(page) }?;
        let phase = PHASES.get(phase as usize).copied();
        page.phase(
            phase
                .ok_or_else(|| CFailure::new(CS_ERROR_ARGUMENT, "phase is one of CS_PHASE_..."))?,
        );
        Ok(0)
    })
}

/// Adds units of work done.
///
/// # Safety
/// `page` is null or from [`cs_page_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_page_work(page: *mut cs_page, units: u64) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        unsafe { used(page) }?.work(units);
        Ok(0)
    })
}

/// Reads the advice of the engine; returns 1, or 0 if there is none.
///
/// # Safety
/// `page` is null or from [`cs_page_open`], `out` null or writable for an advice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_page_read(page: *const cs_page, out: *mut cs_advice) -> c_int {
    guarded(|| {
        // SAFETY: by the caller's contract.
        let page = unsafe { used(page) }?;
        if out.is_null() {
            return Err(missing("out"));
        }
        let Some(advice) = page.read() else {
            return Ok(0);
        };
        // SAFETY: not null, and writable for an advice, by the caller's contract.
        unsafe { out.write(shown(&advice)) };
        Ok(1)
    })
}

/// Number that changes with every change of the advice; 0 for null.
///
/// # Safety
/// `page` is null or from [`cs_page_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_page_epoch(page: *const cs_page) -> u32 {
    // SAFETY: by the caller's contract.
    unsafe { HintPage::from_raw(page.cast()) }.map_or(0, HintPage::epoch)
}

/// Withdraws the hint, and gives up the page. Null is allowed and has no effect.
///
/// # Safety
/// `page` is null or from [`cs_page_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_page_close(page: *mut cs_page) {
    // SAFETY: by the caller's contract.
    if let Some(page) = unsafe { HintPage::from_raw(page.cast_const().cast()) } {
        page.close();
    }
}
