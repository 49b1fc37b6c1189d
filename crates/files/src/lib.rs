//! Files of others are read within limits, files of one's own are there whole or not at all.
//!
//! Every file that a user names goes through [`read`], every file that is written for a user through `write`. Neither knows what
//! is in the file.

pub mod caught;
pub mod memory;
pub mod name;
pub mod packed;
pub mod read;
pub mod scratch;
pub mod write;
