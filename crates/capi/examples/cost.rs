//! Cost of a start and a stop, compared with the system calls that a program would make itself.
//!
//! `cargo run --release -p countersteer --example cost` prints nanoseconds per pair, medians of interleaved rounds. It also
//! prints the cost of writing and reading a page; under `steer run -P hsf --` there is advice to read.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Instant;

use countersteer_c::*;
use perf_event_open_sys::{self as perf, bindings as abi};

const ROUNDS: usize = 101;
const PAIRS: u32 = 2_000;

/// The two events of the region, without the library.
struct Raw {
    leader: std::fs::File,
    _member: std::fs::File,
}

impl Raw {
    fn open(kind: u32, configs: [u64; 2]) -> io::Result<Self> {
        let one = |config, leader| {
            let mut attr = abi::perf_event_attr {
                type_: kind,
                config,
                ..Default::default()
            };
            attr.size = size_of::<abi::perf_event_attr>() as u32;
            let times = abi::PERF_FORMAT_TOTAL_TIME_ENABLED | abi::PERF_FORMAT_TOTAL_TIME_RUNNING;
            attr.read_format = (abi::PERF_FORMAT_GROUP | times) as u64;
            // SAFETY: a fully initialised attribute with its size set, which outlives the call.
            let fd = unsafe {
                perf::perf_event_open(
                    &raw mut attr,
                    0,
                    -1,
                    leader,
                    abi::PERF_FLAG_FD_CLOEXEC.into(),
                )
            };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the kernel has just returned this descriptor, and nothing else has it.
            Ok(unsafe { std::fs::File::from_raw_fd(fd) })
        };
        let leader = one(configs[0], -1)?;
        let member = one(configs[1], leader.as_raw_fd())?;
        Ok(Self {
            leader,
            _member: member,
        })
    }

    fn read(&mut self) -> u64 {
        let mut bytes = [0; 40];
        let length = self.leader.read(&mut bytes).unwrap_or(0);
        u64::from(bytes[24]) + length as u64
    }

    fn switched(&mut self) -> u64 {
        let fd = self.leader.as_raw_fd();
        // SAFETY: these take no pointers.
        unsafe {
            perf::ioctls::ENABLE(fd, abi::PERF_IOC_FLAG_GROUP);
            perf::ioctls::DISABLE(fd, abi::PERF_IOC_FLAG_GROUP);
        }
        self.read()
    }

    fn read_twice(&mut self) -> u64 {
        self.read() + self.read()
    }
}

fn timed(mut pair: impl FnMut() -> u64) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        std::hint::black_box(pair());
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(events: &str, mut raw: Raw, mut switched: Raw) -> Result<(), String> {
    let text = CString::new(events).map_err(|e| e.to_string())?;
    let mut region: *mut cs_region = std::ptr::null_mut();
    // SAFETY: a C string, and a place for a pointer.
    if unsafe { cs_open(text.as_ptr(), 0, &raw mut region) } < 0 {
        // SAFETY: the library returns a C string.
        return Err(unsafe { CStr::from_ptr(cs_strerror()) }
            .to_string_lossy()
            .into_owned());
    }
    let mut took = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        // SAFETY: the region is open.
        took[0].push(timed(|| unsafe {
            (cs_start(region) + cs_stop(region)) as u64
        }));
        took[1].push(timed(|| raw.read_twice()));
        took[2].push(timed(|| switched.switched()));
    }
    // SAFETY: the region is open, and not used from here on.
    unsafe { cs_close(region) };
    let [library, twice, switched] = took.map(median);
    println!("{events}");
    println!("  cs_start, cs_stop                   {library:7.0} ns");
    println!(
        "  read(2) twice                       {twice:7.0} ns   {:.2}",
        library / twice
    );
    println!(
        "  ioctl(2) on, ioctl(2) off, read(2)  {switched:7.0} ns   {:.2}",
        library / switched
    );
    Ok(())
}

/// Touches new pages, each a page fault.
fn touch() -> u64 {
    const PAGES: usize = 400;
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, of which each page is written before it is unmapped.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), PAGES * 4096, protection, flags, -1, 0);
        if base != libc::MAP_FAILED {
            libc::madvise(base, PAGES * 4096, libc::MADV_NOHUGEPAGE);
            (0..PAGES).for_each(|page| base.cast::<u8>().add(page * 4096).write_volatile(1));
            libc::munmap(base, PAGES * 4096);
        }
    }
    PAGES as u64
}

unsafe extern "C" fn count(_: *const cs_moment, user: *mut c_void) {
    // SAFETY: the number that `moments` passes.
    unsafe { *user.cast::<u64>() += 1 };
}

/// Cost of a moment for the counted thread, and for the caller that takes it.
fn moments() -> Result<(), String> {
    let mut every: *mut cs_every = std::ptr::null_mut();
    // SAFETY: a C string, and a place for a pointer.
    if unsafe { cs_every_open(c"page_faults,task_clock".as_ptr(), 1, 0, &raw mut every) } < 0 {
        // SAFETY: the library returns a C string.
        return Err(unsafe { CStr::from_ptr(cs_strerror()) }
            .to_string_lossy()
            .into_owned());
    }
    let (mut noted, mut taken, mut calls) = (Vec::new(), Vec::new(), 0_u64);
    for _ in 0..ROUNDS {
        let once = |switch: unsafe extern "C" fn(*mut cs_every) -> c_int| {
            // SAFETY: it is open.
            unsafe { switch(every) };
            let start = Instant::now();
            let pages = touch();
            start.elapsed().as_nanos() as f64 / pages as f64
        };
        noted.push(once(cs_every_start) - once(cs_every_stop));
        let before = calls;
        let start = Instant::now();
        // SAFETY: it is open, and the number outlives the call.
        unsafe { cs_every_poll(every, 0, Some(count), (&raw mut calls).cast()) };
        taken.push(start.elapsed().as_nanos() as f64 / (calls - before).max(1) as f64);
    }
    // SAFETY: it is open, and not used from here on.
    unsafe { cs_every_close(every) };
    println!("a moment of page_faults,task_clock");
    println!(
        "  for the thread that is counted      {:7.0} ns",
        median(noted)
    );
    println!(
        "  to take it and call back            {:7.0} ns",
        median(taken)
    );
    Ok(())
}

/// Cost of writing and reading a page.
fn pages() -> Result<(), String> {
    let mut page: *mut cs_page = std::ptr::null_mut();
    // SAFETY: a place for a pointer.
    if unsafe { cs_page_open(&raw mut page) } < 0 {
        // SAFETY: the library returns a C string.
        return Err(unsafe { CStr::from_ptr(cs_strerror()) }
            .to_string_lossy()
            .into_owned());
    }
    let hint = cs_told {
        priority: 1,
        qos_permille: 500,
        phase: CS_PHASE_RUNNING,
        workers: 4,
    };
    let mut advice = std::mem::MaybeUninit::<cs_advice>::uninit();
    let (mut took, mut read) = ([const { Vec::new() }; 5], 0);
    // An engine, if there is one, writes advice within a few periods.
    let begun = Instant::now();
    while read == 0 && begun.elapsed().as_millis() < 500 {
        // SAFETY: the page is open, and there is a place for the advice.
        read = unsafe { cs_page_read(page, advice.as_mut_ptr()) };
    }
    for _ in 0..ROUNDS {
        // SAFETY: the page is open, and there is a place for the advice.
        unsafe {
            took[0].push(timed(|| cs_page_tell(page, &raw const hint) as u64));
            took[1].push(timed(|| cs_page_phase(page, CS_PHASE_RUNNING) as u64));
            took[2].push(timed(|| {
                read = cs_page_read(page, advice.as_mut_ptr());
                read as u64
            }));
            took[3].push(timed(|| cs_page_epoch(page).into()));
            took[4].push(timed(|| libc::getppid() as u64));
        }
    }
    let [tell, phase, reading, epoch, call] = took.map(median);
    println!(
        "a page, {}",
        if read == 1 {
            "with advice"
        } else {
            "without an engine"
        }
    );
    for (name, ns) in [
        ("cs_page_tell", tell),
        ("cs_page_phase", phase),
        ("cs_page_read", reading),
    ] {
        println!("  {name:<36}{ns:7.1} ns");
    }
    println!(
        "  {:<36}{epoch:7.1} ns\n  {:<36}{call:7.1} ns",
        "cs_page_epoch", "a system call (getppid)"
    );
    Ok(())
}

fn main() -> Result<(), String> {
    pages()?;
    let kinds = [
        ("task_clock,page_faults", abi::PERF_TYPE_SOFTWARE, [1, 2]),
        ("instructions,cycles", abi::PERF_TYPE_HARDWARE, [1, 0]),
    ];
    for (events, kind, configs) in kinds {
        match (Raw::open(kind, configs), Raw::open(kind, configs)) {
            (Ok(raw), Ok(switched)) => measure(events, raw, switched)?,
            (Err(error), _) | (_, Err(error)) => {
                println!("{events}\n  skipped: the kernel refuses them ({error})")
            }
        }
    }
    moments()
}
