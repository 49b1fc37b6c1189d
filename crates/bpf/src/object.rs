//! Helpers for loading any BPF object.

use std::io;
use std::mem::MaybeUninit;

use libbpf_rs::{ErrorExt, OpenObject, PrintLevel};

/// Memory for an object. Skeletons borrow theirs, so a pointer's worth of memory leaks per load.
pub(crate) fn place() -> &'static mut MaybeUninit<OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// Time of the monotonic clock in ns, which BPF programs read as well.
pub(crate) fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

pub(crate) fn at(what: &'static str) -> impl Fn(libbpf_rs::Error) -> String {
    move |error| format!("{what}: {error}")
}

pub(crate) fn failed(what: &'static str) -> impl Fn(libbpf_rs::Error) -> io::Error {
    move |error| io::Error::other(error.context(what))
}

/// Runs a closure while the library prints nothing.
pub(crate) fn quietly<T>(what: impl FnOnce() -> T) -> T {
    struct PrintsAgain<F: FnMut()>(F);
    impl<F: FnMut()> Drop for PrintsAgain<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let before = libbpf_rs::get_print();
    let _print = PrintsAgain(|| _ = libbpf_rs::set_print(before));
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| {})));
    what()
}
