//! Errors of the C API: a code, and a message of the calling thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use countersteer_counters::CounterError;

/// Invalid argument: a null pointer, a string that is not UTF-8, unknown flags.
pub const CS_ERROR_ARGUMENT: c_int = -1;
/// The event string is wrong, or names an event that this machine does not have.
pub const CS_ERROR_EVENTS: c_int = -2;
/// Not permitted.
pub const CS_ERROR_PERMISSION: c_int = -3;
/// The kernel cannot count this: no counter, too few of them, no such thread.
pub const CS_ERROR_REFUSED: c_int = -4;
/// Wrong state: started twice, stopped twice, used by another thread at this moment.
pub const CS_ERROR_STATE: c_int = -5;
/// Reading failed.
pub const CS_ERROR_SYSTEM: c_int = -6;
/// Defect of the library.
pub const CS_ERROR_INTERNAL: c_int = -7;

/// Failure to be returned to C.
#[derive(Debug)]
pub(crate) struct CFailure {
    pub(crate) code: c_int,
    pub(crate) message: String,
}

impl CFailure {
    pub(crate) fn new(code: c_int, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<CounterError> for CFailure {
    fn from(error: CounterError) -> Self {
        use CounterError as E;
        let code = match &error {
            E::Spec(_) | E::SystemOnly { .. } | E::Malformed { .. } | E::Vendor(_) => {
                CS_ERROR_EVENTS
            }
            E::Forbidden { .. } => CS_ERROR_PERMISSION,
            E::Refused { .. } | E::TooManyFiles { .. } => CS_ERROR_REFUSED,
            E::Region(_) => CS_ERROR_STATE,
            _ => CS_ERROR_SYSTEM,
        };
        Self {
            code,
            message: error.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Stores the message for [`last`]; returns the code.
pub(crate) fn keep(failure: CFailure) -> c_int {
    let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending can no longer read it.
    let _ = LAST.try_with(|last| last.replace(message));
    failure.code
}

/// Last message of the calling thread; valid until its next failure.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
