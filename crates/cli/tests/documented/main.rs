//! Command lines of the README, of the documents and of every `--help`. They run in folders with the files that they name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod documents;
mod folder;
mod helps;
mod lines;
mod running;
mod session;
