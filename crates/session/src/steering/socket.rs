//! The control socket of a run: one line of JSON in, one out.
//!
//! Input: requests `{"ask": "status" | "get" | "set" | "why", ...}`. Output: replies. The socket is in the folder of journals,
//! which only its user can access.

use std::io::{BufRead, BufReader, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use countersteer_live::DecisionRequest;
use countersteer_live::undo;
use countersteer_model::policy::{Policy, PolicyError};
use countersteer_model::topology::Topology;
use mio::net::UnixListener;
use serde_json::{Value, json};

use super::error::SteeringError;
use super::supervisor::{RunControl, SupervisorState};
use crate::serving::{Door, LIMITS, Listener, Refusal, Service};
use countersteer_model::counters::parse_duration;

/// Accepted times between decisions: limited by counters, and by a user's patience.
const PERIODS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(100);
/// Timeout for an answer; it exceeds the time that the run waits for other clients.
const PATIENCE: Duration = LIMITS.time.saturating_mul(2);

/// A property of a run that clients can query and change.
struct RunProperty {
    name: &'static str,
    get: fn(&SupervisorState) -> Value,
    /// Parses and sets a value; returns the value set, or the error.
    set: fn(&RunControl, &Arc<Topology>, &str) -> Result<Value, String>,
}

static KEYS: &[RunProperty] = &[
    RunProperty {
        name: "policy",
        get: |shared| json!(shared.policy),
        set: set_policy,
    },
    RunProperty {
        name: "period",
        get: |shared| json!(period_text(shared.period)),
        set: |control, _, value| {
            let mut shared = control.lock();
            shared.period = period(value)?;
            Ok(json!(period_text(shared.period)))
        },
    },
    RunProperty {
        name: "paused",
        get: |shared| json!(shared.paused),
        set: |control, _, value| {
            let mut shared = control.lock();
            shared.paused = truth(value)?;
            Ok(json!(shared.paused))
        },
    },
    RunProperty {
        name: "stand_back",
        get: |shared| json!(shared.stand_back),
        set: |control, _, value| {
            let mut shared = control.lock();
            shared.stand_back = truth(value)?;
            Ok(json!(shared.stand_back))
        },
    },
    RunProperty {
        name: "steal_above",
        get: stealing,
        set: |control, _, value| {
            let shared = control.lock();
            if shared.stealing.count().is_none() {
                return Err("the affinity engine cannot steal work; the sched_ext scheduler can (--engine scx)".into());
            }
            let wrong = |_| format!("`{value}` is neither a number of waiting threads nor `never`");
            shared.stealing.set_above(if value == "never" {
                None
            } else {
                Some(value.parse().map_err(wrong)?)
            });
            Ok(stealing(&shared))
        },
    },
];

/// File of a socket, deleted with this value.
pub struct SocketFile {
    path: PathBuf,
}

/// Returns a file name for the socket of a run of this process: `run-4711.sock`, and `run-4711-1.sock` for a second run of the kind.
pub fn name(kind: &str) -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    match RUNS.fetch_add(1, Ordering::Relaxed) {
        0 => format!("{kind}-{pid}.sock"),
        others => format!("{kind}-{pid}-{others}.sock"),
    }
}

/// Opens a control socket on `path`, which must not be in use.
///
/// # Errors
/// Another run answers there, or it cannot be bound.
pub fn door(
    path: &Path,
    topology: &Arc<Topology>,
    control: &RunControl,
) -> anyhow::Result<(Door, SocketFile)> {
    let cannot = || format!("cannot listen on {}", path.display());
    // Locks the folder until this process listens, so no other process mistakes the socket for a stale one or replaces it.
    let folder = path.parent().unwrap_or(Path::new("."));
    let _held = undo::hold(folder).with_context(cannot)?;
    if undo::listens(path) {
        return Err(SteeringError::SocketInUse(path.to_owned()).into());
    }
    // Removes the socket of a killed run.
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).with_context(cannot)?;
    let file = SocketFile {
        path: path.to_owned(),
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).with_context(cannot)?;
    let service = LineService {
        topology: Arc::clone(topology),
        control: control.clone(),
    };
    Ok((Door::new(Listener::Unix(listener), Box::new(service)), file))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Service for requests of one line each.
struct LineService {
    topology: Arc<Topology>,
    control: RunControl,
}

impl Service for LineService {
    fn answer(&mut self, received: &[u8], ended: bool) -> Option<Vec<u8>> {
        let line = received.split(|byte| *byte == b'\n').next()?;
        if line.len() == received.len() && !ended {
            return None;
        }
        let reply = match serde_json::from_slice::<Value>(line) {
            Ok(request) => reply(&request, &self.topology, &self.control)
                .unwrap_or_else(|error| json!({ "error": error })),
            Err(error) => json!({ "error": format!("this is not JSON: {error}") }),
        };
        Some(format!("{reply}\n").into_bytes())
    }

    fn refuse(&mut self, why: Refusal) -> Vec<u8> {
        format!("{}\n", json!({ "error": why.why() })).into_bytes()
    }
}

fn reply(request: &Value, topology: &Arc<Topology>, control: &RunControl) -> Result<Value, String> {
    let text = |key: &str| request.get(key).and_then(Value::as_str);
    match text("ask") {
        Some("status") => {
            let shared = control.lock();
            let summary = serde_json::to_value(&shared.summary).map_err(|e| e.to_string())?;
            let period = period_text(shared.period);
            Ok(json!({
                "policy": shared.policy,
                "period": period,
                "paused": shared.paused,
                "stands_back": shared.stands_back,
                "rivals": shared.rivals,
                "dropped": shared.dropped,
                "run": summary,
            }))
        }
        Some("get") => {
            let shared = control.lock();
            let value = |key: &RunProperty| (key.name.to_owned(), (key.get)(&shared));
            Ok(KEYS.iter().map(value).collect())
        }
        Some("set") => {
            let name = text("key").unwrap_or_default();
            let value = text("value").unwrap_or_default();
            let value = set(control, topology, name, value)?;
            let shared = control.lock();
            shared
                .decision_request
                .iter()
                .for_each(DecisionRequest::send);
            Ok(json!({ name: value }))
        }
        Some("why") => {
            let thread = request
                .get("thread")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            let thread = u32::try_from(thread).unwrap_or_default();
            why(&control.lock(), topology, thread)
        }
        other => Err(format!(
            "`{}` is not a request; status, get, set and why are",
            other.unwrap_or_default()
        )),
    }
}

/// Sets a property of the run, or a parameter of its policy.
fn set(
    control: &RunControl,
    topology: &Arc<Topology>,
    name: &str,
    value: &str,
) -> Result<Value, String> {
    if let Some((policy, key)) = name.split_once('.') {
        return set_param(control, topology, (policy, key), value);
    }
    let Some(key) = KEYS.iter().find(|key| key.name == name) else {
        let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        return Err(format!(
            "`{name}` cannot be set; there are {}, and parameters of the policy, as in hsf.margin",
            names.join(", ")
        ));
    };
    (key.set)(control, topology, value)
}

/// Requests another policy.
fn set_policy(control: &RunControl, topology: &Arc<Topology>, spec: &str) -> Result<Value, String> {
    tried(spec, topology, |_| Ok(()))?.map_err(|e| e.to_string())?;
    if countersteer_policies::reach::simulator_only(spec) {
        return Err(format!("only a simulator can run `{spec}`"));
    }
    if let Some(what) = countersteer_policies::reach::lacking(spec) {
        return Err(format!(
            "`{spec}` is unavailable on this machine, which lacks {what}"
        ));
    }
    let mut shared = control.lock();
    if let Some(why) = shared.fixed {
        return Err(why.into());
    }
    shared.exchange(spec, None);
    Ok(json!(spec))
}

/// Creates a policy and uses it, on a thread that is left behind if this takes too long. The run's state must not be locked
/// meanwhile, because the run would wait.
fn tried(
    spec: &str,
    topology: &Arc<Topology>,
    then: impl FnOnce(&mut dyn Policy) -> Result<(), PolicyError> + Send + 'static,
) -> Result<Result<(), PolicyError>, String> {
    let (done, result) = channel();
    let (own, topology) = (spec.to_owned(), Arc::clone(topology));
    let thread = thread::Builder::new().name("steer-trying".into());
    let work = move || {
        let policy = countersteer_policies::parse(&own, &topology);
        // Without a receiver, it took too long.
        let _ = done.send(policy.and_then(|mut policy| then(&mut *policy)));
    };
    let started = thread.spawn(work);
    started.map_err(|why| format!("cannot start a thread: {why}"))?;
    result.recv_timeout(LIMITS.time).map_err(|why| match why {
        RecvTimeoutError::Timeout => {
            format!("`{spec}` is not ready after {:?}", LIMITS.time)
        }
        RecvTimeoutError::Disconnected => format!("`{spec}` panics when it is created"),
    })
}

/// Returns the specification of the policy that decides once all requests are fulfilled.
fn requested(shared: &SupervisorState) -> &str {
    let pending = shared.pending.as_ref().map(|exchange| &exchange.spec);
    let spec = shared.tuned.as_ref().or(pending);
    spec.unwrap_or(&shared.policy)
}

/// Changes a parameter of the active policy.
fn set_param(
    control: &RunControl,
    topology: &Arc<Topology>,
    (policy, key): (&str, &str),
    value: &str,
) -> Result<Value, String> {
    let spec = requested(&control.lock()).to_owned();
    let (def, _) = countersteer_policies::params(&spec).map_err(|e| e.to_string())?;
    if def.name != policy {
        return Err(format!("`{}` decides, not `{policy}`", def.name));
    }
    if value.contains(',') {
        return Err("one parameter at a time".into());
    }
    let changed = countersteer_policies::with_param(&spec, key, value);
    let said = |e: PolicyError| match e {
        PolicyError::Fixed => {
            format!("{policy} takes `{key}` only at its start: set policy={changed}")
        }
        other => other.to_string(),
    };
    let (_, params) = countersteer_policies::params(&changed).map_err(said)?;
    let own = Arc::clone(topology);
    tried(&spec, topology, move |policy| policy.tune(&params, &own))?.map_err(said)?;
    let mut shared = control.lock();
    if requested(&shared) != spec {
        return Err(format!("`{spec}` no longer decides"));
    }
    shared.tuned = Some(changed);
    Ok(json!(value))
}

/// The last decision about a thread, with its program's hint.
fn why(shared: &SupervisorState, topology: &Topology, thread: u32) -> Result<Value, String> {
    let word = shared
        .words
        .get(&thread)
        .map(|word| word.spell_out(topology, &shared.numbers));
    let Some(hint) = shared.hints.get(&thread) else {
        return word.ok_or_else(|| format!("no decision about thread {thread} is known"));
    };
    let mut word = word.unwrap_or_else(|| json!({ "thread": thread }));
    word["told"] = serde_json::to_value(hint).map_err(|e| e.to_string())?;
    Ok(word)
}

/// Parses a time between decisions, such as `50ms`.
fn period(text: &str) -> Result<Duration, String> {
    let period = Duration::from_nanos(parse_duration(text).map_err(|e| e.message)?.0);
    if PERIODS.contains(&period) {
        return Ok(period);
    }
    Err(format!(
        "`{text}` is not a period between decisions; {:?} to {:?} are",
        PERIODS.start(),
        PERIODS.end()
    ))
}

fn truth(value: &str) -> Result<bool, String> {
    value
        .parse()
        .map_err(|_| format!("`{value}` is neither true nor false"))
}

fn stealing(shared: &SupervisorState) -> Value {
    shared.stealing.above().map_or(json!("never"), |n| json!(n))
}

fn period_text(period: Duration) -> String {
    format!("{period:?}")
}

/// Sends a request to the run that listens on `path`.
pub fn ask(path: &Path, request: &Value) -> anyhow::Result<Value> {
    let stream = UnixStream::connect(path).with_context(|| {
        format!(
            "no run answers on {}; `steer ctl list` shows active runs",
            path.display()
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    (&stream).write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Sockets in a folder that answer.
pub fn answering(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path());
    let mut paths: Vec<PathBuf> = entries
        .filter(|p| p.extension().is_some_and(|e| e == "sock") && undo::listens(p))
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use countersteer_model::cpunumbers::CpuNumbers;
    use countersteer_model::placement::{Reason, Target, ThreadPlacement};
    use countersteer_model::topology::GroupBy;
    use countersteer_model::units::{CpuId, Nanos, ThreadId};

    use super::super::supervisor::DecisionText;
    use super::*;

    #[test]
    fn keys_are_got_as_they_were_set_and_wrong_ones_are_errors() {
        let machine = countersteer_lab::library::machine("i9-12900k-8p8e").map(|(m, _)| m);
        let topology = Arc::new(Topology::new(
            &machine.unwrap_or_else(|e| unreachable!("{e}")),
        ));
        let control = RunControl::default();
        let set = |key, value| {
            reply(
                &json!({ "ask": "set", "key": key, "value": value }),
                &topology,
                &control,
            )
        };
        assert_eq!(set("period", "50ms"), Ok(json!({ "period": "50ms" })));
        assert_eq!(set("policy", "aarr"), Ok(json!({ "policy": "aarr" })));
        let pending = |shared: &SupervisorState| shared.pending.as_ref().map(|p| p.spec.clone());
        assert_eq!(pending(&control.lock()).as_deref(), Some("aarr"));
        assert!(set("steal_above", "2").is_err_and(|why| why.starts_with("the affinity engine")));
        control.lock().stealing.set_count(Some(0));
        assert_eq!(set("steal_above", "2"), Ok(json!({ "steal_above": 2 })));
        let got = reply(&json!({ "ask": "get" }), &topology, &control);
        assert_eq!(
            got,
            Ok(json!({
                "policy": "", "period": "50ms", "paused": false, "stand_back": false, "steal_above": 2
            }))
        );
        assert_eq!(
            set("steal_above", "never"),
            Ok(json!({ "steal_above": "never" }))
        );
        control.lock().pending = None;
        control.lock().fixed = Some("it is compared");
        assert_eq!(set("policy", "aarr"), Err("it is compared".into()));
        assert!(control.lock().pending.is_none());
        control.lock().policy = "hsf:sf=work".into();
        assert_eq!(set("hsf.margin", "0.1"), Ok(json!({ "hsf.margin": "0.1" })));
        assert_eq!(
            control.lock().tuned.as_deref(),
            Some("hsf:sf=work,margin=0.1")
        );
        for (key, value) in [
            ("hsf.margin", "much"),
            ("hsf.margin", "0.1,sf=model"),
            ("hsf.clamp", "on"),
            ("hsf.speed", "1"),
            ("aarr.turn_ms", "7"),
            ("steal_above", "some"),
            ("period", "1h"),
            ("paused", "perhaps"),
            ("speed", "1"),
        ] {
            assert!(set(key, value).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn a_decision_has_the_kernels_cpu_numbers() {
        let machine = countersteer_lab::library::machine("i9-12900k-8p8e").map(|(m, _)| m);
        let topology = Arc::new(Topology::new(
            &machine.unwrap_or_else(|e| unreachable!("{e}")),
        ));
        let control = RunControl::default();
        let slow = topology.groups_by(GroupBy::CoreType)[1].id;
        let placed = ThreadPlacement::new(ThreadId(7), Target::Group(slow), Reason::rule("slow"));
        let word = DecisionText {
            placed,
            program: None,
            at: Nanos(0),
        };
        control.lock().words.insert(7, word);
        control.lock().numbers = CpuNumbers::new((100..116).map(CpuId).collect());
        let answer = reply(&json!({ "ask": "why", "thread": 7 }), &topology, &control);
        assert_eq!(
            answer.map(|word| word["cpus"].clone()),
            Ok(json!("108-115"))
        );
    }

    #[test]
    fn every_request_has_an_answer() {
        let machine = countersteer_lab::library::machine("i9-12900k-8p8e").map(|(m, _)| m);
        let topology = Arc::new(Topology::new(
            &machine.unwrap_or_else(|e| unreachable!("{e}")),
        ));
        let control = RunControl::default();
        let examples: [&[u8]; 4] = [
            br#"{"ask": "set", "key": "policy", "value": "hsf:sf=work,margin=0.1"}"#,
            br#"{"ask": "set", "key": "period", "value": "50ms"}"#,
            br#"{"ask": "why", "thread": 4711}"#,
            br#"{"ask": "status"}"#,
        ];
        countersteer_fuzz::storm("control request", &examples, 0.3, |input| {
            if let Ok(request) = serde_json::from_slice::<Value>(input) {
                let _ = reply(&request, &topology, &control);
            }
        });
    }
}
