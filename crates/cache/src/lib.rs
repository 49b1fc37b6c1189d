//! Caches simulated line by line, and memory traces of programs.
//!
//! - [`cache`] is one set-associative cache, [`private`] the private caches of a core, [`shared`] the caches behind the cores.
//! - [`wire`] is the event stream that instrumented programs send ([`tracer`] encodes it) and [`trace`] files contain.
//! - [`forest`] simulates caches of many sizes and associativities at once. [`stack`] measures stack distances. [`curve`]
//!   applies both to an event stream.
//! - [`layout`] is the form of the recorder's raw files.
//! - [`space`] distinguishes the processes in a stream.
//! - [`signature`] is the signature of a program: its misses in caches of many sizes and associativities.
//!
//! Lines have 64 bytes everywhere. The same events give the same result on every machine. The recorder's plugin uses this crate
//! too, without the feature `files`.

pub mod cache;
pub mod curve;
pub mod forest;
mod geometry;
pub mod layout;
pub mod prefetch;
pub mod private;
pub mod shared;
#[cfg(feature = "files")]
pub mod signature;
pub mod source;
pub mod space;
pub mod stack;
#[cfg(feature = "files")]
pub mod trace;
pub mod tracer;
pub mod wire;

pub use cache::{Cache, LineKey};
pub use geometry::{CacheError, Geometry, Replacement};
