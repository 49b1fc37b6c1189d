//! Number of threads for a real command: the runner of the search, the comparison of what it found with the default, the result.
//!
//! Input: a command with `{n}`, candidates of this machine. Output: trials, paired comparisons, command lines to type.

pub mod error;
pub mod finals;
pub mod form;
pub mod live;
pub mod result;
