//! Check of whether the kernel reports the final counts of threads at their exit.
//!
//! With `inherit_stat` the kernel reports them, but some kernels do not (6.12 and 6.16 of Debian do not; 6.18 and 7.2 do).
//! Reports of several events must not share a ring buffer ([`super::open`]). Without reports, the final counts of threads are
//! known only as a sum. BPF programs report final counts on any kernel ([`crate::counting::bpf`]).

use std::sync::OnceLock;

use countersteer_sysfs::procfs::PROC;

use super::record::{RingRecord, parse};
use super::sys::{self, Attr, EventScope, Ring, abi};

/// Kind and config of the kernel's dummy event, which counts nothing.
pub(crate) const NOTHING: (u32, u64) = (abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_DUMMY as u64);

/// Sampling period of the dummy event. The dummy event never has a sample, but must be a sampled event. At a context switch
/// between parent and child, the kernel exchanges the counts of events that are not sampled. It would then report the counts
/// of one thread as those of the other, or none.
pub(crate) const SAMPLED: u64 = 1;

/// True if the kernel reports final counts. The first call tries it with a child process that exits at once.
#[must_use]
pub fn reports_final_counts() -> bool {
    static TELLS: OnceLock<bool> = OnceLock::new();
    *TELLS.get_or_init(|| try_telling().unwrap_or(false))
}

fn try_telling() -> std::io::Result<bool> {
    let kind = NOTHING.0;
    let config = [NOTHING.1, 0, 0, 0];
    let inherit = true;
    let tell_at_exit = true;
    let ring = true;
    let period = SAMPLED;
    let attr = Attr {
        kind,
        config,
        period,
        inherit,
        tell_at_exit,
        ring,
        exclude_kernel: true,
        ..Attr::default()
    };
    let cpu = nix::sched::sched_getcpu()? as u32;
    let fd = sys::open(&attr, EventScope::Thread(0, Some(cpu)), None)?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
    let mut ring = Ring::map_sized(&fd, page)?;
    let Ok(brief) = std::thread::spawn(nix::unistd::gettid).join() else {
        return Ok(false);
    };
    // A child that was waited for may not have left its CPU yet.
    while PROC.has(brief.as_raw().unsigned_abs()) {
        std::thread::yield_now();
    }
    let mut bytes = Vec::new();
    let mut reported = false;
    ring.drain(&mut bytes, |record| {
        reported |= matches!(parse(record), RingRecord::Last { .. })
    });
    Ok(reported)
}
