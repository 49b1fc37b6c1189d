//! Free memory, and the end of a program for which there is none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;

/// Bytes that a process can have besides those it has: free memory of the system, or less where a limit (`ulimit -v`) leaves less.
/// `None` where /proc is not there.
#[must_use]
pub fn available() -> Option<u64> {
    let free = kilobytes("/proc/meminfo", "MemAvailable:")?;
    let limit = address_space().and_then(|limit| {
        let used = kilobytes("/proc/self/status", "VmSize:")?;
        Some(limit.saturating_sub(used))
    });
    Some(limit.map_or(free, |limit| limit.min(free)))
}

fn kilobytes(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number << 10)
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

/// Ends the process without allocating anything.
#[cold]
fn end(size: usize) -> ! {
    let mut line = Line {
        bytes: [0; 200],
        length: 0,
    };
    let _ = writeln!(
        line,
        "steer: out of memory: {size} bytes more could not be had; use a smaller input, or raise the limit if there is one (`ulimit -v`)"
    );
    // SAFETY: the bytes are there, and the process ends.
    unsafe {
        libc::write(2, line.bytes.as_ptr().cast(), line.length);
        libc::_exit(EXIT_CODE)
    }
}

/// A line of text that needs no memory.
struct Line {
    bytes: [u8; 200],
    length: usize,
}

impl Write for Line {
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
