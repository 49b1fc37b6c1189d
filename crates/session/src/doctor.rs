//! Checks of this machine's capabilities, and the fixes for missing ones.
//!
//! Input: a root directory (`/`, or a fake one). Output: a [`Finding`] per row of `CHECKS`. The checks change nothing, except
//! that one creates and removes resctrl monitoring groups. Checks that ask the running kernel run only for the root `/`.
use std::path::{Path, PathBuf};

use countersteer_model::events::EventDef;
use countersteer_sysfs::resctrl::Resctrl;
use countersteer_sysfs::sensors::{PROVIDERS, ProviderDef};
use countersteer_sysfs::topology::{self, Survey};
use countersteer_sysfs::unavailable::Unavailable;
use nix::sys::resource::{Resource, getrlimit};

use countersteer_counters::EventProbe;
use countersteer_profiler::{ProfileOptions, Tools};
use countersteer_sysfs::procfs::Procfs;
use countersteer_sysfs::{cgroup, files, sched_ext};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingState {
    Works,
    Limited,
    Missing,
}

impl FindingState {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub state: FindingState,
    pub found: String,
    /// Fix for a missing capability, or possible improvement; empty if there is none.
    pub remedy: String,
}

/// One row of the table of checks.
pub(crate) struct CheckDef {
    pub name: &'static str,
    /// Feature that needs the checked capability.
    pub needed_for: &'static str,
    /// True if the check asks the running kernel instead of reading files.
    live: bool,
    check: fn(&Path) -> Finding,
}

const fn files(
    name: &'static str,
    needed_for: &'static str,
    check: fn(&Path) -> Finding,
) -> CheckDef {
    CheckDef {
        name,
        needed_for,
        live: false,
        check,
    }
}

const fn live(
    name: &'static str,
    needed_for: &'static str,
    check: fn(&Path) -> Finding,
) -> CheckDef {
    CheckDef {
        name,
        needed_for,
        live: true,
        check,
    }
}

/// All checks except those of virtual counters, which have their own table ([`PROVIDERS`]).
pub(crate) static CHECKS: &[CheckDef] = &[
    files("machine", "core types, caches, placement", machine),
    live("counting", "`steer stat`: events of the kernel", counting),
    live(
        "hardware counters",
        "`steer stat`: instructions, cycles, misses",
        hardware_counters,
    ),
    files(
        "exclusive counters",
        "no counter is used by others",
        nmi_watchdog,
    ),
    live(
        "thread exits",
        "`steer stat`: exact counts of short threads",
        ends_of_threads,
    ),
    files(
        "counting by BPF",
        "`steer stat`, `steer top`: counting per thread with less overhead",
        counting_by_bpf,
    ),
    live(
        "open files",
        "counters of many threads and CPUs",
        open_files,
    ),
    live("recording", "`steer profile`", recording),
    live("affinity", "placing your own threads", affinity),
    files(
        "control groups",
        "rules by cgroup, CPU bandwidth",
        control_groups,
    ),
    files(
        "way masks",
        "`steer profile --online`: miss curves",
        way_masks,
    ),
    files("sched_ext", "placing threads in the kernel", sched_ext),
    files(
        "frequency hints",
        "performance hints for threads",
        frequency_hints,
    ),
];

/// Runs the checks that apply to this root, and checks the availability of every virtual counter. Returns the name, purpose and
/// finding of each check.
#[must_use]
pub fn examine(root: &Path) -> Vec<(&'static str, &'static str, Finding)> {
    let here = root == Path::new("/");
    let checks = CHECKS
        .iter()
        .filter(|c| here || !c.live)
        .map(|c| (c.name, c.needed_for, (c.check)(root)));
    checks
        .chain(
            PROVIDERS
                .iter()
                .map(|p| (p.name, p.prose, provider(p, root))),
        )
        .collect()
}

impl Finding {
    fn works(found: impl Into<String>) -> Self {
        Self {
            state: FindingState::Works,
            found: found.into(),
            remedy: String::new(),
        }
    }

    fn limited(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: FindingState::Limited,
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    fn missing(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: FindingState::Missing,
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

fn machine(root: &Path) -> Finding {
    match topology::survey(root) {
        Ok(Survey { machine, remedies }) => {
            let types: Vec<&str> = machine.core_type.iter().map(|t| t.name.as_str()).collect();
            let found = format!(
                "{}: {} CPUs, core types {}",
                machine.title,
                machine.cpu_count(),
                types.join(", ")
            );
            if remedies.is_empty() {
                return Finding::works(found);
            }
            let remedy =
                "correct the assumptions in a machine file (`steer machine detect -o FILE`)";
            Finding::limited(format!("{found}. {}", remedies.join(" ")), remedy)
        }
        Err(error) => Finding::missing(
            error.to_string(),
            "describe it in a machine file (`steer machine show` prints one)",
        ),
    }
}

/// Checks if resctrl can partition the last-level cache by way masks.
fn way_masks(root: &Path) -> Finding {
    match Resctrl::at(root).allocation() {
        Ok(found) => Finding::works(format!(
            "a last-level cache of {} ways (resctrl)",
            found.ways
        )),
        Err(Unavailable { why, remedy }) => {
            let without = "until then sizes are estimated (`--by co-runners`)";
            Finding::missing(why, format!("{remedy}; {without}"))
        }
    }
}

/// Checks if the kernel can count the portable event with this name.
fn probed(name: &str) -> EventProbe {
    let code = EventDef::by_name(name).and_then(EventDef::perf);
    code.map_or(EventProbe::NoCounter, |(kind, config)| {
        countersteer_counters::probe(kind, config)
    })
}

fn counting(root: &Path) -> Finding {
    let paranoid = Procfs::below(root)
        .setting("perf_event_paranoid")
        .unwrap_or_else(|| "unknown".into());
    let found = |what: &str| format!("{what} (kernel.perf_event_paranoid is {paranoid})");
    match probed("task_clock") {
        EventProbe::Counts => Finding::works(found("user and kernel mode")),
        EventProbe::UserOnly => Finding::limited(
            found("user mode only"),
            countersteer_counters::permission(1),
        ),
        EventProbe::Forbidden => {
            Finding::missing(found("not permitted"), countersteer_counters::permission(2))
        }
        EventProbe::NoCounter => Finding::missing(
            "the kernel counts nothing",
            "a kernel with CONFIG_PERF_EVENTS is needed",
        ),
        EventProbe::Other(why) => Finding::missing(
            why,
            "a container may filter perf_event_open: allow it in its seccomp profile",
        ),
    }
}

fn hardware_counters(root: &Path) -> Finding {
    let names = [
        "instructions",
        "cycles",
        "llc_references",
        "llc_misses",
        "branches",
        "branch_misses",
    ];
    let (has, lacks): (Vec<&str>, Vec<&str>) = names
        .iter()
        .partition(|name| matches!(probed(name), EventProbe::Counts | EventProbe::UserOnly));
    if has.is_empty() {
        let virtual_machine = Procfs::below(root).cpuinfo().contains("hypervisor");
        let remedy = if virtual_machine {
            "configure a PMU for the virtual machine (QEMU: `-cpu host,pmu=on`)"
        } else {
            "check that the firmware does not hide the PMU and that its driver is loaded (`dmesg | grep -i pmu`)"
        };
        return Finding::missing("none", remedy);
    }
    let found = has.join(", ");
    if lacks.is_empty() {
        Finding::works(found)
    } else {
        Finding::limited(
            format!("{found}; not {}", lacks.join(", ")),
            "name this processor's own events (`steer events`)",
        )
    }
}

fn nmi_watchdog(root: &Path) -> Finding {
    match Procfs::below(root).setting("nmi_watchdog").as_deref() {
        Some("1") => Finding::limited(
            "the NMI watchdog holds a counter of every core",
            "`sysctl kernel.nmi_watchdog=0`",
        ),
        _ => Finding::works("the NMI watchdog is off"),
    }
}

fn ends_of_threads(_: &Path) -> Finding {
    if countersteer_counters::reports_final_counts() {
        return Finding::works("final counts of threads are reported");
    }
    let remedy = "a newer kernel (6.18), or run as root: see counting by BPF";
    Finding::limited("final counts are known only as a sum over threads", remedy)
}

fn open_files(_: &Path) -> Finding {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard >= 65_536 => Finding::works(format!("up to {hard}")),
        Ok((_, hard)) => Finding::limited(
            format!("up to {hard}"),
            "raise the limit: `nofile` in /etc/security/limits.conf",
        ),
        Err(error) => Finding::missing(error.to_string(), "allow getrlimit"),
    }
}

fn recording(_: &Path) -> Finding {
    match countersteer_profiler::tools() {
        Ok(Tools { engine, plugin }) => {
            let (qemu, origin) = (engine.file.display(), engine.origin.text());
            let found = format!("{qemu} ({origin}) with {}", plugin.display());
            match trial_recording() {
                Ok(instructions) => {
                    let millions = instructions / 1_000_000;
                    Finding::works(format!(
                        "{found}; {millions} M instructions recorded as a test"
                    ))
                }
                Err(why) => Finding::missing(format!("{found} records nothing: {why}"), RECORDER),
            }
        }
        Err(error) => Finding::missing("not possible", error.to_string()),
    }
}

/// Fix for a recorder (QEMU plugin) that records nothing.
const RECORDER: &str = "build the recorder again (`scripts/recorder-engine.sh`), or check the output of `steer profile -- true`";

/// Records a shell loop that runs for about a second; returns the number of recorded instructions, or the reason for a failure.
fn trial_recording() -> Result<u64, String> {
    const MOST: u64 = 20_000_000;
    let script = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
    let mut options = ProfileOptions::new(["sh", "-c", script].map(str::to_owned).to_vec());
    options.max_instructions = Some(MOST);
    options.stdin_null = true;
    let recorded = countersteer_profiler::profile(&options).map_err(|e| e.to_string())?;
    match recorded.profile.instructions {
        0 => Err("it counted no instruction".into()),
        instructions => Ok(instructions),
    }
}

fn affinity(root: &Path) -> Finding {
    let Ok(allowed) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) else {
        return Finding::missing(
            "sched_getaffinity is refused",
            "a container may filter it: allow it in its seccomp profile",
        );
    };
    let allowed = (0..nix::sched::CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .count();
    let online = files::online(root).map_or(allowed, |cpus| cpus.len());
    if allowed < online {
        return Finding::limited(
            format!("{allowed} of {online} CPUs"),
            "a cpuset or affinity mask limits this process: widen it to use the rest",
        );
    }
    Finding::works(format!("all {online} CPUs"))
}

fn control_groups(root: &Path) -> Finding {
    let Some(controllers) = cgroup::controllers(&root.join("sys/fs/cgroup")) else {
        return Finding::missing(
            "no cgroup v2 at /sys/fs/cgroup",
            "boot with `systemd.unified_cgroup_hierarchy=1`, or mount it",
        );
    };
    let has = |name: &str| controllers.split_whitespace().any(|c| c == name);
    if has("cpu") && has("cpuset") {
        return Finding::works(format!("version 2 with {controllers}"));
    }
    Finding::limited(
        format!("version 2 with {controllers}"),
        "enable `cpu` and `cpuset` in the parent's cgroup.subtree_control",
    )
}

fn counting_by_bpf(root: &Path) -> Finding {
    let without = "until then each thread has its own perf events";
    let has_bpf = Procfs::below(root).setting("unprivileged_bpf_disabled");
    if has_bpf.is_none() {
        let remedy = format!("a kernel with CONFIG_BPF_SYSCALL is needed; {without}");
        return Finding::limited("this kernel supports no BPF programs", remedy);
    }
    if !countersteer_counters::sees_all_threads(root) {
        let remedy = format!("run outside of the container; {without}");
        return Finding::limited(
            "TIDs in the kernel differ from those in this container",
            remedy,
        );
    }
    if !countersteer_counters::may_load_programs(root) {
        let remedy = format!("run as root, or with CAP_BPF and CAP_PERFMON; {without}");
        return Finding::limited("available, but not permitted", remedy);
    }
    Finding::works("programs that count threads may be loaded")
}

fn sched_ext(root: &Path) -> Finding {
    let Some(state) = sched_ext::state(root) else {
        let release = Procfs::below(root)
            .setting("osrelease")
            .unwrap_or_else(|| "this kernel".into());
        let remedy =
            "a kernel from 6.12 on with CONFIG_SCHED_CLASS_EXT is needed; affinity works without";
        return Finding::missing(format!("{release} has none"), remedy);
    };
    if !root.join("sys/kernel/btf/vmlinux").exists() {
        return Finding::missing(
            "the kernel has no type information",
            "a kernel with CONFIG_DEBUG_INFO_BTF is needed",
        );
    }
    let taken = sched_ext::loaded(root).filter(|_| state != "disabled");
    if let Some(other) = taken {
        return Finding::limited(
            format!("`{other}` is loaded"),
            "stop it first: only one such scheduler runs at a time",
        );
    }
    if !countersteer_counters::may_load_programs(root) {
        return Finding::limited(
            "available, but not permitted",
            "run as root, or with CAP_BPF and CAP_PERFMON",
        );
    }
    Finding::works("available, and no other scheduler is loaded")
}

fn frequency_hints(root: &Path) -> Finding {
    let clamp = Procfs::below(root)
        .setting("sched_util_clamp_min")
        .is_some();
    let preference: PathBuf =
        root.join("sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference");
    match (clamp, preference.exists()) {
        (true, true) => Finding::works("utilisation clamps, energy preference"),
        (true, false) => Finding::works("utilisation clamps"),
        (false, true) => Finding::works("energy preference"),
        (false, false) => Finding::missing(
            "neither utilisation clamps nor an energy preference",
            "a kernel with CONFIG_UCLAMP_TASK",
        ),
    }
}

fn provider(def: &ProviderDef, root: &Path) -> Finding {
    let columns: Vec<&str> = def.columns.iter().map(|c| c.name).collect();
    match (def.open)(root) {
        Ok(_) => Finding::works(columns.join(", ")),
        Err(Unavailable { why, remedy }) => Finding::missing(why, remedy),
    }
}

#[cfg(test)]
mod tests;
