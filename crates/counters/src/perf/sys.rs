//! System calls for counters. All unsafe code of event groups and ring buffers is here.
//!
//! Input: attributes of an event. Output: file descriptors, values of groups, and ring buffers.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use perf::bindings as abi;
use perf_event_open_sys as perf;

/// Attributes of an event: the subset of `perf_event_attr` that this program sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    pub(crate) config: [u64; 4],
    pub(crate) exclude_user: bool,
    pub(crate) exclude_kernel: bool,
    pub(crate) disabled: bool,
    pub(crate) enable_on_exec: bool,
    /// True if threads and processes that the target creates inherit the event.
    pub(crate) inherit: bool,
    /// True if the counts of each inheriting thread are written to the ring buffer when it exits.
    pub(crate) tell_at_exit: bool,
    /// True if forks, names and exits are written to the ring buffer.
    pub(crate) follow: bool,
    /// Number of events per sample; 0 for no samples.
    pub(crate) period: u64,
    /// True if `period` is instead a limit on the number of samples per second.
    pub(crate) frequency: bool,
    /// True if samples and records are written to a ring buffer at all.
    pub(crate) ring: bool,
    /// True if each sample ends the wait for records; false if only a ring buffer that fills up does.
    pub(crate) wake_each: bool,
    /// Set if each sample stops the thread with a signal instead, which has the data address and this value.
    pub(crate) traps: Option<u64>,
    /// Required precision of the sampled instruction, as in `precise_ip`.
    pub(crate) precise: u32,
    /// Accesses at which a watch point triggers, as in `bp_type`; 0 for other events.
    pub(crate) watched: u32,
}

/// Format of group reads: the two times, then value and identifier of each event.
pub(super) const READ_FORMAT: u64 = (abi::PERF_FORMAT_TOTAL_TIME_ENABLED
    | abi::PERF_FORMAT_TOTAL_TIME_RUNNING
    | abi::PERF_FORMAT_ID
    | abi::PERF_FORMAT_GROUP) as u64;

/// Format of samples, which [`super::record`] parses.
pub(super) const SAMPLE_TYPE: u64 = (abi::PERF_SAMPLE_IDENTIFIER
    | abi::PERF_SAMPLE_TID
    | abi::PERF_SAMPLE_TIME
    | abi::PERF_SAMPLE_CPU) as u64
    | READ;
const READ: u64 = abi::PERF_SAMPLE_READ as u64;

/// Threads and CPUs on which an event counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventScope {
    /// Thread (by TID) on any CPU, or on one CPU.
    Thread(u32, Option<u32>),
    /// All threads on a CPU.
    Cpu(u32),
    /// Control group, by the descriptor of its folder, on a CPU.
    Cgroup(RawFd, u32),
}

/// Opens an event in the group of `leader`; `None` if the event leads a group of its own.
pub(crate) fn open(
    attr: &Attr,
    scope: EventScope,
    leader: Option<&OwnedFd>,
) -> io::Result<OwnedFd> {
    let mut raw = raw_attr(attr);
    let (pid, cpu, extra) = match scope {
        EventScope::Thread(tid, cpu) => (tid as i32, cpu.map_or(-1, |c| c as i32), 0),
        EventScope::Cpu(cpu) => (-1, cpu as i32, 0),
        EventScope::Cgroup(fd, cpu) => (fd, cpu as i32, abi::PERF_FLAG_PID_CGROUP),
    };
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    let flags = (abi::PERF_FLAG_FD_CLOEXEC | extra).into();
    // SAFETY: `raw` is a fully initialised attribute with its size set, and outlives the call.
    let fd = unsafe { perf::perf_event_open(&raw mut raw, pid, cpu, group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn raw_attr(attr: &Attr) -> abi::perf_event_attr {
    let mut raw = abi::perf_event_attr {
        type_: attr.kind,
        config: attr.config[0],
        ..Default::default()
    };
    raw.size = size_of::<abi::perf_event_attr>() as u32;
    raw.__bindgen_anon_3.config1 = attr.config[1];
    raw.__bindgen_anon_4.config2 = attr.config[2];
    raw.config3 = attr.config[3];
    raw.read_format = READ_FORMAT;
    raw.set_exclude_user(attr.exclude_user.into());
    raw.set_exclude_kernel(attr.exclude_kernel.into());
    raw.set_exclude_hv(attr.exclude_kernel.into());
    raw.set_disabled(attr.disabled.into());
    raw.set_enable_on_exec(attr.enable_on_exec.into());
    raw.set_inherit(attr.inherit.into());
    raw.bp_type = attr.watched;
    if let Some(value) = attr.traps {
        raw.sample_type = abi::PERF_SAMPLE_ADDR.into();
        raw.__bindgen_anon_1.sample_period = attr.period;
        raw.sig_data = value;
        raw.set_precise_ip(attr.precise.into());
        raw.set_sigtrap(1);
        raw.set_remove_on_exec(1);
    }
    if attr.ring {
        // At context switches between parent and child, the kernel exchanges their counters instead of switching them, which
        // costs little. If samples read the counts, it must not do that.
        raw.sample_type = if attr.period > 0 {
            SAMPLE_TYPE
        } else {
            SAMPLE_TYPE & !READ
        };
        raw.__bindgen_anon_1.sample_period = attr.period;
        raw.set_freq(attr.frequency.into());
        raw.set_inherit_stat(attr.tell_at_exit.into());
        raw.set_task(attr.follow.into());
        raw.set_comm(attr.follow.into());
        raw.set_comm_exec(attr.follow.into());
        raw.set_sample_id_all(1);
        raw.set_use_clockid(1);
        raw.clockid = libc::CLOCK_MONOTONIC;
        raw.set_watermark((!attr.wake_each).into());
        if attr.wake_each {
            raw.__bindgen_anon_2.wakeup_events = 1;
        } else {
            raw.__bindgen_anon_2.wakeup_watermark = (RING_BYTES / 8) as u32;
        }
    }
    raw
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Returns the identifier that records contain for an event.
pub(crate) fn id(fd: &OwnedFd) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the kernel writes one u64 to `id`, which outlives the call.
    checked(unsafe { perf::ioctls::ID(fd.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Switches a whole group on or off, in all inheriting threads.
pub(crate) fn switch(leader: &OwnedFd, on: bool) -> io::Result<()> {
    let fd = leader.as_raw_fd();
    let group = abi::PERF_IOC_FLAG_GROUP;
    // SAFETY: these calls take no pointers.
    checked(unsafe {
        if on {
            perf::ioctls::ENABLE(fd, group)
        } else {
            perf::ioctls::DISABLE(fd, group)
        }
    })
}

/// Makes an event write into the ring buffer of another event.
pub(crate) fn redirect(fd: &OwnedFd, ring: &OwnedFd) -> io::Result<()> {
    // SAFETY: this call takes no pointers.
    checked(unsafe { perf::ioctls::SET_OUTPUT(fd.as_raw_fd(), ring.as_raw_fd()) })
}

/// Reads a group into `values`, in the order in which its events were opened. Returns the enabled and running time in ns.
/// `bytes` is a buffer.
pub(crate) fn read_group(
    leader: &OwnedFd,
    bytes: &mut Vec<u8>,
    values: &mut Vec<u64>,
) -> io::Result<(u64, u64)> {
    bytes.resize(8 * (3 + 2 * 66), 0);
    // `File` can read, `OwnedFd` cannot; `ManuallyDrop` keeps the descriptor open. SAFETY: the descriptor stays open as long
    // as `leader` is borrowed, and is not closed here.
    let mut file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(leader.as_raw_fd()) });
    let length = retried(|| file.read(bytes))?;
    values.clear();
    let mut words = bytes[..length]
        .as_chunks()
        .0
        .iter()
        .map(|c| u64::from_ne_bytes(*c));
    let (_, enabled, running) = (
        words.next(),
        words.next().unwrap_or(0),
        words.next().unwrap_or(0),
    );
    values.extend(words.step_by(2));
    Ok((enabled, running))
}

/// Retries a read that the kernel refuses with ECHILD while an inheriting thread of the group is being removed. That takes
/// microseconds, or longer in a virtual machine whose host stops one of its CPUs.
fn retried<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for attempt in 0..10_000 {
        match read() {
            Err(e) if e.raw_os_error() != Some(libc::ECHILD) => return Err(e),
            Err(_) if attempt < 1_000 => std::thread::yield_now(),
            Err(_) => std::thread::sleep(std::time::Duration::from_micros(200)),
            done => return done,
        }
    }
    read()
}

/// Size of a ring buffer in bytes. An ordinary user may lock half a megabyte per CPU.
pub(crate) const RING_BYTES: usize = 512 << 10;

/// Ring buffer that the kernel writes and this program reads.
pub(crate) struct Ring {
    base: *mut u8,
    length: usize,
    page: usize,
    size: usize,
    /// Position at which the next record begins.
    tail: u64,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it is tied to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring buffer of `size` bytes, a power of two.
    pub(crate) fn map_sized(fd: &OwnedFd, size: usize) -> io::Result<Self> {
        let page =
            nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
        let length = page + size;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: this is a new mapping at an address of the kernel's choice; it affects no existing mapping.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                flags,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            length,
            page,
            size,
            tail: 0,
        })
    }

    /// True if there is a record to read.
    pub(crate) fn waits(&self) -> bool {
        self.control(std::mem::offset_of!(abi::perf_event_mmap_page, data_head))
            .load(Ordering::Acquire)
            > self.tail
    }

    /// Passes every available record to `take`, and returns its bytes to the kernel. `scratch` is a buffer.
    pub(crate) fn drain(&mut self, scratch: &mut Vec<u8>, mut take: impl FnMut(&[u8])) {
        let head = self
            .control(std::mem::offset_of!(abi::perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        while self.tail < head {
            scratch.resize(8, 0);
            self.copy(self.tail, scratch);
            let size = usize::from(u16::from_ne_bytes([scratch[6], scratch[7]]));
            // A record is never shorter than its header. If it were, the position of the next one would be unknown.
            if size < 8 {
                self.tail = head;
                break;
            }
            scratch.resize(size, 0);
            self.copy(self.tail, scratch);
            take(scratch);
            self.tail += size as u64;
        }
        let tail = self.control(std::mem::offset_of!(abi::perf_event_mmap_page, data_tail));
        tail.store(self.tail, Ordering::Release);
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping is a `perf_event_mmap_page`. Its head and tail are aligned u64 fields that
        // both sides access atomically. The mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    fn copy(&self, from: u64, into: &mut [u8]) {
        let start = (from % self.size as u64) as usize;
        let first = into.len().min(self.size - start);
        // SAFETY: both slices lie within the data pages behind the first page. The kernel does not write between tail and
        // head. The target does not overlap the mapping.
        unsafe {
            let data = self.base.add(self.page);
            std::ptr::copy_nonoverlapping(data.add(start), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, into.as_mut_ptr().add(first), into.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and no reference into it is left.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// Returns the time in ns by the clock of the records' time stamps (CLOCK_MONOTONIC).
pub(crate) fn now() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}
