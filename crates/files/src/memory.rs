//! Free memory, and the end of a program for which there is none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;

/// Bytes that a process can have besides those it has: free memory of the system, or less where a limit (`ulimit -v`) leaves less.
/// `None` where /proc is not there.
#[must_use]
pub fn available() -> Option<u64> {
    let free = kilobytes("/proc/meminfo", "MemAvailable:")?;
    let limit = address_space().and_then(|limit| Some(limit.saturating_sub(used()?)));
    Some(limit.map_or(free, |limit| limit.min(free)))
}

fn kilobytes(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number << 10)
}

/// The bytes of addresses that this process has.
fn used() -> Option<u64> {
    kilobytes("/proc/self/status", "VmSize:")
}

/// The limit on addresses, if there is one.
fn address_space() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The system's allocator, under which a program that gets no memory ends with a sentence and exit code 5, as where a disk is full.
///
/// Rust's own way is to abort, which leaves "memory allocation failed" and a core dump; a hook for that (`set_alloc_error_hook`) is for
/// nightly compilers only.
pub struct Allocator;

/// Exit code of a program without memory.
const EXIT_CODE: i32 = 5;

// SAFETY: each call is passed on as it is.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by this function's caller.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by this function's caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by this function's caller.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by this function's caller.
        given(unsafe { System.realloc(pointer, layout, size) }, size)
    }
}

fn given(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() {
        end(size);
    }
    pointer
}

#[cold]
fn end(size: usize) -> ! {
    end_with(format_args!(
        "steer: out of memory: {size} bytes more could not be had; use a smaller input, or raise the limit if there is one (`ulimit -v`)"
    ))
}

/// Starts of the panics of the standard library and of rayon where the system gives no thread.
const NO_THREAD: [&str; 2] = [
    "failed to spawn thread",
    "The global thread pool has not been initialized",
];

/// Bytes that a program needs to start: its stack, which grows, the lists of its options, and a thread.
const LEAST: u64 = 6 << 20;

/// Makes a lack of memory that no allocator sees end this program with a sentence and exit code 5, too.
///
/// A limit on addresses may leave no room for the stack, which would be a fault; that is found here. Where no thread can be started,
/// libraries panic; that is found later. Other panics are printed as before.
pub fn guard() {
    let left = address_space().zip(used());
    let left = left.map(|(limit, used)| limit.saturating_sub(used));
    if let Some(left) = left.filter(|left| *left < LEAST) {
        end_with(format_args!(
            "steer: out of memory: {} kB are left to start with: raise the limit (`ulimit -v`)",
            left >> 10
        ));
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = crate::caught::text(panic.payload());
        if NO_THREAD.iter().any(|start| said.starts_with(start)) {
            end_with(format_args!(
                "steer: no thread could be started: raise the limit on memory or on processes (`ulimit -v`, `ulimit -u`), or end others"
            ));
        }
        usual(panic);
    }));
}

/// Ends the process without allocating anything.
fn end_with(said: std::fmt::Arguments<'_>) -> ! {
    let mut line = StackLine {
        bytes: [0; 200],
        length: 0,
    };
    let _ = writeln!(line, "{said}");
    // SAFETY: the bytes are there, and the process ends.
    unsafe {
        libc::write(2, line.bytes.as_ptr().cast(), line.length);
        libc::_exit(EXIT_CODE)
    }
}

/// A line of text that needs no memory.
struct StackLine {
    bytes: [u8; 200],
    length: usize,
}

impl Write for StackLine {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let room = room.get_mut(..text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_available_and_no_more_than_a_machine_has() {
        let total = kilobytes("/proc/meminfo", "MemTotal:").unwrap();
        let free = available().unwrap();
        assert!(free > 1 << 20 && free <= total, "{free} of {total}");
    }
}
