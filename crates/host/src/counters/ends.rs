//! How threads' final counts are told.
//!
//! Two ways. With `inherit_stat` the kernel tells them itself, to whoever may count; but some kernels forget to (6.12 and 6.16 of
//! Debian, not 6.18 and 7.2), and what several events tell may not be mixed ([`super::open`]). The tracepoint of ends tells them on
//! any kernel; but its number is in a table that is root's as a rule, and each event of it makes births and ends dearer.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;

use super::record::{Record, parse};
use super::sys::{self, Attr, Ring, Scope, abi};

/// Kind and config of the kernel's own event that counts nothing.
pub(super) const NOTHING: (u32, u64) = (abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_DUMMY as u64);

/// Its period. It never has a sample, but is a sampled event: of others the kernel exchanges those of relatives when they take
/// turns, and would tell the one's counts as the other's, or nothing.
pub(super) const SAMPLED: u64 = 1;

/// Whether the kernel tells when threads end, so that their last counts are exact.
#[must_use]
pub fn sees_exits() -> bool {
    exit_point().is_some() || kernel_tells()
}

/// The number of the tracepoint of a thread's end, looked up once.
pub(super) fn exit_point() -> Option<u64> {
    static POINT: OnceLock<Option<u64>> = OnceLock::new();
    *POINT.get_or_init(find_exit_point)
}

/// The table of tracepoints is not mounted everywhere.
fn find_exit_point() -> Option<u64> {
    let read = |root: &str| {
        std::fs::read_to_string(format!("{root}/events/sched/sched_process_exit/id")).ok()
    };
    let mounted = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .find_map(read);
    let private = || {
        let folder = sys::tracefs().ok()?;
        read(&format!("/proc/self/fd/{}", folder.as_raw_fd()))
    };
    mounted.or_else(private)?.trim().parse().ok()
}

/// Whether the kernel tells final counts itself, tried once with a thread that ends at once.
pub(super) fn kernel_tells() -> bool {
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
    let fd = sys::open(&attr, Scope::Thread(0, Some(cpu)), None)?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
    let mut ring = Ring::map_sized(&fd, page)?;
    let Ok(brief) = std::thread::spawn(nix::unistd::gettid).join() else {
        return Ok(false);
    };
    // Whoever was waited for may still be on its way out.
    let folder = format!("/proc/self/task/{brief}");
    while Path::new(&folder).exists() {
        std::thread::yield_now();
    }
    let mut bytes = Vec::new();
    let mut told = false;
    ring.drain(&mut bytes, |record| {
        told |= matches!(parse(record), Record::Last { .. })
    });
    Ok(told)
}
