//! Recorded architectures, and their differences outside the instruction set.
//!
//! Input: QEMU's name of the architecture. Output: numbers of system calls and of ELF files.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Architecture of the recorded program, which may differ from this process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Guest {
    X86_64,
    Aarch64,
}

/// Numbers of system calls that need special handling.
pub struct Calls {
    /// Calls that create a process.
    pub forks: &'static [i64],
    pub execve: i64,
    pub execveat: i64,
    pub exit_group: i64,
}

/// From `arch/x86/entry/syscalls/syscall_64.tbl` of the kernel.
const X86_64_CALLS: Calls = Calls {
    forks: &[56, 57, 58],
    execve: 59,
    execveat: 322,
    exit_group: 231,
};

/// From `include/uapi/asm-generic/unistd.h`.
const AARCH64_CALLS: Calls = Calls {
    forks: &[220],
    execve: 221,
    execveat: 281,
    exit_group: 94,
};

/// Number of `io_uring_setup` on all architectures.
pub const IO_URING_SETUP: i64 = 425;

static OWN: AtomicU8 = AtomicU8::new(Guest::X86_64 as u8);

impl Guest {
    /// Returns the architecture with QEMU's name for it.
    pub fn named(name: &CStr) -> Option<Self> {
        match name.to_bytes() {
            b"x86_64" => Some(Self::X86_64),
            b"aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Stores it as the architecture of this process.
    pub fn keep(self) {
        OWN.store(self as u8, Relaxed);
    }

    /// Returns the architecture of this process.
    pub fn own() -> Self {
        if OWN.load(Relaxed) == Self::Aarch64 as u8 {
            Self::Aarch64
        } else {
            Self::X86_64
        }
    }

    pub const fn calls(self) -> &'static Calls {
        match self {
            Self::X86_64 => &X86_64_CALLS,
            Self::Aarch64 => &AARCH64_CALLS,
        }
    }

    /// True if a file starts like a 64-bit little-endian ELF program of this architecture.
    pub fn is_program(self, head: &[u8]) -> bool {
        let machine: u16 = match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        };
        head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&machine.to_le_bytes())
    }
}
