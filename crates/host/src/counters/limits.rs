//! The limit of open files: a counter is one.
//!
//! Input: how many are needed. Effect: the limits are raised as far as they must be and may be.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::CounterError;

/// Files that are open anyway, and some to spare.
const OTHERS: u64 = 64;

/// Files that may be open at most.
pub(super) fn most() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(OTHERS, |(_, hard)| hard)
}

/// Makes room for so many open counters.
///
/// # Errors
/// The hard limit is lower.
pub(super) fn make_room(counters: u64) -> Result<(), CounterError> {
    let needed = counters + OTHERS;
    // Where the limit cannot be read or set, opening tells.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if needed <= soft {
        return Ok(());
    }
    // Root may raise the hard limit too, up to fs.nr_open.
    let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, needed.max(hard));
    if needed > hard && raised.is_err() {
        return Err(CounterError::TooManyFiles { needed, limit: hard });
    }
    Ok(())
}
