//! Frequency hints of threads: utilisation clamps (uclamp), which the kernel's frequency governor and CPU selection use.
//!
//! Input: a thread, a hint. Output: the change, or the error.

use std::io;

use countersteer_model::placement::Clamp;
use nix::errno::Errno;

/// Reader and writer of utilisation clamps.
pub trait Clamps {
    fn get(&self, tid: u32) -> io::Result<Clamp>;
    fn set(&self, tid: u32, clamp: Clamp) -> io::Result<()>;
}

pub struct ClampKernel;

/// The kernel's `struct sched_attr`, in its second version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    least: u32,
    most: u32,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

impl Clamps for ClampKernel {
    fn get(&self, tid: u32) -> io::Result<Clamp> {
        let mut attributes = Attributes::default();
        // SAFETY: the kernel writes at most `SIZE` bytes, all of which `attributes` owns.
        let done =
            unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, SIZE, 0) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Clamp {
            least: attributes.least,
            most: attributes.most,
        })
    }

    fn set(&self, tid: u32, clamp: Clamp) -> io::Result<()> {
        // A thread without a hint has no value: the kernel represents that as the largest number.
        let free = clamp == Clamp::FREE;
        let (least, most) = if free {
            (u32::MAX, u32::MAX)
        } else {
            (clamp.least, clamp.most)
        };
        match set(tid, least, most) {
            Err(error) if free && error.raw_os_error() == Some(libc::EINVAL) => {
                set(tid, clamp.least, clamp.most)
            }
            done => done,
        }
    }
}

fn set(tid: u32, least: u32, most: u32) -> io::Result<()> {
    const KEEP_ALL: u64 = 0x08 | 0x10;
    const CLAMP_BOTH: u64 = 0x20 | 0x40;
    let attributes = Attributes {
        size: SIZE,
        flags: KEEP_ALL | CLAMP_BOTH,
        least,
        most,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads the `size` bytes of `attributes`.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) };
    Ok(Errno::result(done).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_was_set_is_read_back_and_taken_back() {
        let hint = Clamp {
            least: 100,
            most: 700,
        };
        match ClampKernel.set(0, hint) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                countersteer_fuzz::skipped(
                    "this kernel has no utilisation clamps (CONFIG_UCLAMP_TASK)",
                );
                return;
            }
            done => done.unwrap(),
        }
        assert_eq!(ClampKernel.get(0).unwrap(), hint);
        ClampKernel.set(0, Clamp::FREE).unwrap();
        assert_eq!(ClampKernel.get(0).unwrap(), Clamp::FREE);
        assert!(ClampKernel.set(u32::MAX >> 1, hint).is_err());
    }
}
