//! The simulator: a machine, programs and the Linux scheduler in one fast model.
//!
//! [`linux`] decides which thread runs where, [`progress`] says how far each gets, [`engine`] puts them together behind the same two
//! verbs that real hosts have.

pub mod engine;
pub mod linux;
pub mod progress;
