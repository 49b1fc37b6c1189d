//! Caches simulated line by line, and what programs do to them.
//!
//! - [`cache`] is one set-associative cache, [`private`] what a core has to itself, [`shared`] what lies behind cores.
//! - [`wire`] is the stream of events that instrumented programs send ([`tracer`] makes it) and [`trace`] files hold.
//! - [`forest`] simulates caches of many sizes and associativities at once, [`stack`] measures stack distances, [`curve`] does
//!   both to a stream of events.
//! - [`space`] tells the processes of a stream apart.
//! - [`signature`] is what programs carry: misses in many caches at once.
//!
//! Lines are 64 bytes everywhere. The same events give the same result, whatever the machine.

pub mod cache;
pub mod curve;
pub mod forest;
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

pub use cache::{Cache, CacheError, Geometry, Key, Replacement};
