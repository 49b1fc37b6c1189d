//! Tests of counters around code: only the events between start and stop are counted.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use countersteer_counters::region::{Region, RegionOptions};
use countersteer_counters::{CounterError, EventProbe, probe};
use countersteer_model::events::Event;

const PAGES: usize = 300;

/// True if the kernel lets this test count at all; reports a skip if not.
fn counts() -> bool {
    let (kind, config) = Event::PageFaults.def().perf().unwrap();
    let probed = probe(kind, config);
    let counts = matches!(probed, EventProbe::Counts | EventProbe::UserOnly);
    if !counts {
        countersteer_fuzz::skipped(format_args!(
            "the kernel counts no page faults here ({probed:?})"
        ));
    }
    counts
}

/// Touches new pages, each a page fault.
fn touch(pages: usize) {
    // SAFETY: this takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let length = pages * size;
    // SAFETY: a new mapping, written within its bounds and unmapped.
    unsafe {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let base = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        libc::madvise(base, length, libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            base.cast::<u8>().add(page * size).write_volatile(1);
        }
        libc::munmap(base, length);
    }
}

fn value(region: &mut Region, name: &str) -> u64 {
    let counts = region.read().unwrap();
    counts
        .iter()
        .find(|c| c.name == name)
        .and_then(|c| c.value)
        .unwrap()
}

fn faults(region: &mut Region) -> usize {
    value(region, "page_faults") as usize
}

fn open(options: RegionOptions) -> Region {
    Region::open("task_clock,page_faults", options).unwrap()
}

#[test]
fn intervals_add_up_and_what_lies_between_them_does_not_count() {
    if !counts() {
        return;
    }
    let mut region = open(RegionOptions::default());
    touch(PAGES);
    assert_eq!(faults(&mut region), 0, "before the first start");
    for _ in 0..2 {
        region.start().unwrap();
        touch(PAGES);
        region.stop().unwrap();
        touch(5 * PAGES);
    }
    let counted = faults(&mut region);
    assert!((2 * PAGES..4 * PAGES).contains(&counted), "{counted}");
    assert!(value(&mut region, "task_clock") > 0);
    for count in region.counts() {
        assert!(
            count.enabled_ns > 0 && count.running_ns == count.enabled_ns,
            "{count:?}"
        );
    }
    region.reset().unwrap();
    assert_eq!(faults(&mut region), 0, "after a reset");
}

#[test]
fn an_interval_can_be_read_and_reset_while_it_goes_on() {
    if !counts() {
        return;
    }
    let mut region = open(RegionOptions::default());
    region.start().unwrap();
    touch(PAGES);
    assert!(faults(&mut region) >= PAGES);
    region.reset().unwrap();
    assert!(faults(&mut region) < PAGES);
    touch(PAGES);
    region.stop().unwrap();
    assert!(faults(&mut region) >= PAGES);
}

#[test]
fn regions_lie_within_regions() {
    if !counts() {
        return;
    }
    let mut outer = open(RegionOptions::default());
    let mut inner = open(RegionOptions::default());
    outer.start().unwrap();
    touch(PAGES);
    inner.start().unwrap();
    touch(PAGES);
    inner.stop().unwrap();
    outer.stop().unwrap();
    let outer = faults(&mut outer);
    let inner = faults(&mut inner);
    assert!(
        outer >= 2 * PAGES && inner >= PAGES && outer >= inner + PAGES,
        "{outer} {inner}"
    );
}

#[test]
fn threads_count_only_where_they_are_inherited() {
    if !counts() {
        return;
    }
    let mut both = [
        open(RegionOptions::default()),
        open(RegionOptions {
            inherit: true,
            ..RegionOptions::default()
        }),
    ];
    both.iter_mut().for_each(|r| r.start().unwrap());
    std::thread::spawn(|| touch(10 * PAGES)).join().unwrap();
    both.iter_mut().for_each(|r| r.stop().unwrap());
    let [alone, inherited] = both.each_mut().map(faults);
    assert!(
        alone < 10 * PAGES && inherited >= 10 * PAGES,
        "{alone} {inherited}"
    );
}

#[test]
fn another_thread_can_be_counted() {
    if !counts() {
        return;
    }
    let (tell, sent) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let worker = std::thread::spawn(move || {
        // SAFETY: this takes no arguments.
        tell.send(unsafe { libc::gettid() } as u32).unwrap();
        gone.recv().unwrap();
        touch(PAGES);
    });
    let mut region = open(RegionOptions {
        thread: Some(sent.recv().unwrap()),
        ..RegionOptions::default()
    });
    region.start().unwrap();
    go.send(()).unwrap();
    worker.join().unwrap();
    region.stop().unwrap();
    assert!(faults(&mut region) >= PAGES);
}

#[test]
fn hardware_counters_agree_with_what_runs() {
    let (kind, config) = Event::Instructions.def().perf().unwrap();
    let probed = probe(kind, config);
    if !matches!(probed, EventProbe::Counts | EventProbe::UserOnly) {
        countersteer_fuzz::skipped(format_args!(
            "this machine counts no instructions ({probed:?})"
        ));
        return;
    }
    let mut region = Region::open("instructions:u", RegionOptions::default()).unwrap();
    region.start().unwrap();
    let sum = (0..1_000_000u64).fold(0, |sum, i| std::hint::black_box(sum + i));
    region.stop().unwrap();
    assert_eq!(sum, 499_999_500_000);
    let counted: u64 = region.read().unwrap().iter().filter_map(|c| c.value).sum();
    assert!(counted > 1_000_000, "{counted}");
}

#[test]
fn misuse_and_strings_that_are_no_events_are_errors_that_say_so() {
    let error = |events: &str| {
        Region::open(events, RegionOptions::default())
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    assert!(
        error("task_clok").contains("did you mean `task_clock`"),
        "{}",
        error("task_clok")
    );
    assert!(error("").contains("event"), "{}", error(""));
    if !counts() {
        return;
    }
    let mut region = open(RegionOptions::default());
    assert!(matches!(region.stop(), Err(CounterError::Region(_))));
    region.start().unwrap();
    assert!(matches!(region.start(), Err(CounterError::Region(_))));
    region.stop().unwrap();
}
