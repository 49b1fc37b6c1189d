//! Measurement of a miss curve by co-runners that are slowed down to different degrees (PMCTrack, section 4.3.1, without its
//! duty-cycle modulation of cores).
//!
//! Input: a co-running process that fills caches. Output: the co-runner runs for a fraction of the time, by a bandwidth
//! limit of its control group, or stopped and continued by signals. A shared cache is divided in proportion to misses, which
//! bring lines in. The program's occupancy is therefore estimated by its fraction of the misses, unless the hardware
//! measures it (resctrl monitoring).
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use countersteer_sysfs::pidfd;
use countersteer_sysfs::sensors::SensorSet;
use nix::sys::signal::Signal;

use super::{IntervalCounts, OnlineError, OnlineSource, Squeeze};
use crate::undo::TemporaryJournal;
use crate::undo::entry::JournalEntry;

/// Percentage of the time in which the co-runner runs, by setting.
const DUTIES: [u32; 6] = [0, 10, 25, 50, 75, 100];
/// Percentage of the time in which the program itself runs, for the settings after those. It then loses lines while its
/// co-runners bring theirs in.
const OWN_DUTIES: [u32; 4] = [75, 50, 25, 10];
/// Length of a duty cycle.
const PERIOD: Duration = Duration::from_millis(20);

/// Brake that makes a process run for only a percentage of the time.
#[derive(Debug)]
pub enum Brake {
    /// Bandwidth limit of a control group for the process.
    Group(PathBuf),
    /// Signals that stop and continue the process.
    Signals(DutyCycle),
}

/// Thread that stops and continues a process by signals.
#[derive(Debug)]
pub struct DutyCycle {
    process: Arc<OwnedFd>,
    percent: Arc<AtomicU32>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Brake {
    /// Creates a brake for a process: a control group below `root` if possible, otherwise signals.
    ///
    /// # Errors
    /// Fails if the thread that sends signals cannot be started.
    pub fn new(root: &Path, pid: u32, undo: &mut TemporaryJournal) -> Result<Self, OnlineError> {
        match group(root, pid, undo)? {
            Some(folder) => Ok(Self::Group(folder)),
            None => DutyCycle::start(pid).map(Self::Signals),
        }
    }

    /// Creates a brake for a process that this one did not start. The process stays in its control group, so signals are
    /// used.
    ///
    /// # Errors
    /// Fails if the process does not exist, or if the thread that sends signals cannot be started.
    pub fn of_other(pid: u32, undo: &mut TemporaryJournal) -> Result<Self, OnlineError> {
        undo.stopped(pid)?;
        DutyCycle::start(pid).map(Self::Signals)
    }

    /// Sets the percentage of the time in which the process runs.
    ///
    /// # Errors
    /// Fails if the control group no longer exists.
    pub fn set(&self, percent: u32) -> Result<(), OnlineError> {
        match self {
            Self::Signals(signals) => {
                signals.percent.store(percent, Ordering::Relaxed);
                Ok(())
            }
            Self::Group(folder) => {
                let period = 20_000;
                // At 100 percent, the limit is one CPU; the kernel's minimum quota is a millisecond.
                let quota = (period * percent / 100).max(1_000);
                set_frozen(folder, percent == 0)?;
                put(&folder.join("cpu.max"), &format!("{quota} {period}"))
            }
        }
    }
}

fn put(path: &Path, text: &str) -> Result<(), OnlineError> {
    let remedy = "another process has removed the control group; run the command again";
    fs::write(path, text).map_err(|source| OnlineError::File {
        doing: "write",
        path: path.into(),
        source,
        remedy,
    })
}

fn set_frozen(folder: &Path, frozen: bool) -> Result<(), OnlineError> {
    put(
        &folder.join("cgroup.freeze"),
        if frozen { "1" } else { "0" },
    )
}

/// Creates a control group with a bandwidth limit for the process. `None` if this is not possible.
fn group(
    root: &Path,
    pid: u32,
    undo: &mut TemporaryJournal,
) -> Result<Option<PathBuf>, OnlineError> {
    let mount = root.join("sys/fs/cgroup");
    let folder = mount.join(format!("countersteer-{}-{pid}", std::process::id()));
    if !mount.join("cgroup.controllers").is_file() {
        return Ok(None);
    }
    undo.write(JournalEntry::Group(folder.clone()))?;
    if fs::create_dir(&folder).is_err() {
        return Ok(None);
    }
    // Without these files, the group has no CPU controller.
    let works = folder.join("cpu.max").is_file()
        && fs::write(folder.join("cgroup.procs"), pid.to_string()).is_ok();
    if !works {
        let _ = fs::remove_dir(&folder);
    }
    Ok(works.then_some(folder))
}

/// Iterates over the signals of a duty cycle with this percentage, each with the time to wait after it.
fn cycle(percent: u32) -> impl Iterator<Item = (Duration, Signal)> {
    let on = PERIOD * percent.min(100) / 100;
    let parts = [(on, Signal::SIGCONT), (PERIOD - on, Signal::SIGSTOP)];
    parts.into_iter().filter(|(part, _)| !part.is_zero())
}

impl DutyCycle {
    fn start(pid: u32) -> Result<Self, OnlineError> {
        // A pidfd is used, because the PID may be reused after the process has ended.
        let process = pidfd::open(pid).map_err(|source| OnlineError::Process {
            doing: format!("signal process {pid}"),
            source,
            remedy: "it has ended, or is another user's",
        })?;
        let process = Arc::new(process);
        let braked = Arc::clone(&process);
        let percent = Arc::new(AtomicU32::new(100));
        let done = Arc::new(AtomicBool::new(false));
        let duty = Arc::clone(&percent);
        let end = Arc::clone(&done);
        let run = move || {
            while !end.load(Ordering::Relaxed) {
                for (part, which) in cycle(duty.load(Ordering::Relaxed)) {
                    pidfd::send_signal(&braked, which);
                    std::thread::sleep(part);
                }
            }
            pidfd::send_signal(&braked, Signal::SIGCONT);
        };
        let thread = std::thread::Builder::new().name("brake".into()).spawn(run);
        let thread = thread.map_err(|source| OnlineError::Process {
            doing: "start a thread".into(),
            source,
            remedy: "raise the limit on processes (`ulimit -u`)",
        })?;
        Ok(Self {
            process,
            percent,
            done,
            thread: Some(thread),
        })
    }
}

impl Drop for DutyCycle {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        pidfd::send_signal(&self.process, Signal::SIGCONT);
    }
}

/// Squeeze by co-runners that run between none and all of the time.
pub struct Duty<S: OnlineSource> {
    brakes: Vec<Brake>,
    /// Brake of the program itself, for cache sizes below that at full speed; `None` without these settings.
    own: Option<Brake>,
    /// Counters of the co-runners.
    co_runners: S,
    /// Size of the shared cache in KiB.
    llc_kib: f64,
    /// Sensors of the program's occupancy; `None` if the hardware does not measure it.
    held: Option<SensorSet>,
}

impl<S: OnlineSource> Duty<S> {
    /// Creates a squeeze that slows co-runners by these brakes; `llc_kib` is the size of the shared cache.
    pub fn new(brakes: Vec<Brake>, co_runners: S, llc_kib: f64, held: Option<SensorSet>) -> Self {
        Self {
            brakes,
            own: None,
            co_runners,
            llc_kib,
            held,
        }
    }

    /// Adds settings in which the program is slowed as well, while its co-runners run all the time. It then occupies less
    /// cache than at full speed.
    #[must_use]
    pub fn with_own(self, brake: Brake) -> Self {
        Self {
            own: Some(brake),
            ..self
        }
    }
}

impl<S: OnlineSource> Squeeze for Duty<S> {
    fn settings(&self) -> usize {
        let own = self.own.as_ref().map_or(0, |_| OWN_DUTIES.len());
        DUTIES.len() + own
    }

    fn apply(&mut self, setting: usize) -> Result<(), OnlineError> {
        let theirs = DUTIES.get(setting).copied().unwrap_or(100);
        if let Some(own) = &self.own {
            let below = setting.checked_sub(DUTIES.len());
            own.set(below.map_or(100, |nth| OWN_DUTIES[nth]))?;
        }
        self.brakes.iter().try_for_each(|brake| brake.set(theirs))
    }

    fn begin(&mut self) -> Result<(), OnlineError> {
        Ok(self.co_runners.begin()?)
    }

    fn end(&mut self, _: usize, seen: &IntervalCounts) -> Result<Option<f64>, OnlineError> {
        let theirs: f64 = self.co_runners.end()?.values().map(|s| s.misses).sum();
        if let Some(meters) = &mut self.held {
            let bytes: Vec<f64> = meters.read().iter().map(|v| v.value).collect();
            if !bytes.is_empty() {
                return Ok(Some(bytes.iter().sum::<f64>() / 1024.0).filter(|kib| *kib > 0.0));
            }
        }
        // A program without misses has all the cache that it needs.
        let share = if seen.misses > 0.0 {
            seen.misses / (seen.misses + theirs)
        } else {
            1.0
        };
        Ok((seen.cycles > 0.0).then_some(self.llc_kib * share))
    }
}

#[cfg(test)]
mod tests {
    use countersteer_counters::CounterError;

    use super::*;
    use std::collections::BTreeMap;
    use std::process::{Child, Command};

    fn undo() -> TemporaryJournal {
        let folder = tempfile::tempdir().unwrap();
        TemporaryJournal::begin(folder.path()).unwrap()
    }

    fn busy() -> Child {
        Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap()
    }

    fn is_stopped(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    }

    /// Waits until the condition holds, for at most a minute, which is more than any machine takes.
    fn until(mut holds: impl FnMut() -> bool) -> bool {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if holds() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn a_cycle_has_its_part_of_the_time() {
        let [ms5, ms15, ms20] = [5, 15, 20].map(Duration::from_millis);
        let of = |percent| cycle(percent).collect::<Vec<_>>();
        assert_eq!(of(0), [(ms20, Signal::SIGSTOP)]);
        assert_eq!(of(25), [(ms5, Signal::SIGCONT), (ms15, Signal::SIGSTOP)]);
        assert_eq!(of(100), [(ms20, Signal::SIGCONT)]);
        assert_eq!(of(200), of(100));
    }

    #[test]
    fn signals_let_a_process_run_part_of_the_time() {
        let root = tempfile::tempdir().unwrap();
        let mut child = busy();
        let brake = Brake::new(root.path(), child.id(), &mut undo()).unwrap();
        assert!(matches!(brake, Brake::Signals(_)));
        let pid = child.id();
        // The length of each part depends on the machine; the existence of both does not.
        for _ in 0..3 {
            brake.set(25).unwrap();
            let both = until(|| is_stopped(pid)) && until(|| !is_stopped(pid));
            assert!(both && until(|| is_stopped(pid)));
        }
        // A cycle that began before the setting may still end.
        let settles = |percent, stopped: bool| {
            brake.set(percent).unwrap();
            until(|| (0..50).all(|_| is_stopped(pid) == stopped))
        };
        assert!(settles(0, true) && settles(100, false));
        brake.set(0).unwrap();
        assert!(until(|| is_stopped(pid)));
        drop(brake);
        assert!(until(|| !is_stopped(pid)), "it runs on without its brake");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_control_group_has_the_limit_where_one_can_be_made() {
        let root = tempfile::tempdir().unwrap();
        let mount = root.path().join("sys/fs/cgroup");
        let own = mount.join("countersteer-1-2");
        fs::create_dir_all(&mount).unwrap();
        fs::write(mount.join("cgroup.controllers"), "cpu\n").unwrap();
        assert_eq!(
            group(root.path(), 1, &mut undo()).unwrap(),
            None,
            "a group without files has no limit"
        );
        let brake = Brake::Group(own.clone());
        fs::create_dir(&own).unwrap();
        brake.set(25).unwrap();
        let text = |name: &str| fs::read_to_string(own.join(name)).unwrap();
        assert_eq!(
            (text("cpu.max").as_str(), text("cgroup.freeze").as_str()),
            ("5000 20000", "0")
        );
        brake.set(0).unwrap();
        assert_eq!(text("cgroup.freeze"), "1");
    }

    #[test]
    fn a_program_of_a_mix_is_slowed_down_after_its_co_runners() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let brake = |name: &str| {
            fs::create_dir(place(name)).unwrap();
            Brake::Group(place(name))
        };
        let duty = Duty::new(vec![brake("other")], Fixed(0.0), 4096.0, None);
        assert_eq!(duty.settings(), DUTIES.len());
        let mut duty = duty.with_own(brake("own"));
        let quota = |name: &str| fs::read_to_string(place(name).join("cpu.max")).unwrap();
        let settings = (0..duty.settings()).map(|setting| {
            duty.apply(setting).unwrap();
            (quota("other"), quota("own"))
        });
        let settings: Vec<_> = settings.collect();
        let of = |percent: u32| format!("{} 20000", (200 * percent).max(1_000));
        let theirs = DUTIES.map(|percent| (of(percent), of(100)));
        let own = OWN_DUTIES.map(|percent| (of(100), of(percent)));
        assert_eq!(settings, [&theirs[..], &own].concat());
    }

    struct Fixed(f64);

    impl OnlineSource for Fixed {
        fn begin(&mut self) -> Result<(), CounterError> {
            Ok(())
        }
        fn end(&mut self) -> Result<BTreeMap<String, IntervalCounts>, CounterError> {
            Ok([(
                String::new(),
                IntervalCounts {
                    misses: self.0,
                    ..IntervalCounts::default()
                },
            )]
            .into())
        }
    }

    #[test]
    fn the_programs_part_is_its_share_of_the_misses() {
        let mut duty = Duty::new(Vec::new(), Fixed(300.0), 4096.0, None);
        duty.begin().unwrap();
        let ran = IntervalCounts {
            cycles: 9.0,
            ..IntervalCounts::default()
        };
        assert_eq!(
            duty.end(
                0,
                &IntervalCounts {
                    misses: 100.0,
                    ..ran
                }
            )
            .unwrap(),
            Some(1024.0)
        );
        assert_eq!(
            duty.end(0, &ran).unwrap(),
            Some(4096.0),
            "who misses nothing has what it wants"
        );
        assert_eq!(
            duty.end(0, &IntervalCounts::default()).unwrap(),
            None,
            "who did not run tells nothing"
        );
    }
}
