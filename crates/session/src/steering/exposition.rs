//! Metrics of a running job for Prometheus, on a loopback address.
//!
//! Input: the data shared with the control socket. Output: OpenMetrics text at `/metrics`.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::Context;
use mio::net::TcpListener;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::error::SteeringError;
use super::summary::SteeringSummary;
use super::supervisor::RunControl;
use crate::http;
use crate::serving::{Door, Listener, Refusal, Service};

type Labels = Vec<(String, String)>;
type ExposedLevel = Gauge<f64, AtomicU64>;
/// A value that only grows, so a rate can be computed.
type GrowingSum = Counter<f64, AtomicU64>;

/// Time for which metrics are cached, so that frequent requests cost the steering thread nothing.
const FRESH: Duration = Duration::from_millis(100);

/// Listener with a service on `address`.
///
/// # Errors
/// It is not a loopback address, or cannot be bound.
pub fn door(address: SocketAddr, control: &RunControl) -> anyhow::Result<Door> {
    if !address.ip().is_loopback() {
        return Err(SteeringError::NoLoopback(address).into());
    }
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let figures = ExposedFigures {
        address: listener.local_addr().unwrap_or(address),
        control: control.clone(),
        last: None,
    };
    Ok(Door::new(Listener::Tcp(listener), Box::new(figures)))
}

/// Metrics over HTTP.
struct ExposedFigures {
    address: SocketAddr,
    control: RunControl,
    last: Option<(Instant, String)>,
}

impl ExposedFigures {
    fn text(&mut self) -> &str {
        let old = |(at, _): &(Instant, String)| at.elapsed() > FRESH;
        if self.last.as_ref().is_none_or(old) {
            self.last = Some((Instant::now(), exposition(&self.control)));
        }
        self.last.as_ref().map_or("", |(_, text)| text)
    }
}

impl Service for ExposedFigures {
    fn answer(&mut self, received: &[u8], ended: bool) -> Option<Vec<u8>> {
        let request = match http::request(received, ended)? {
            Ok(request) => request,
            Err(answer) => return Some(answer),
        };
        if !request.is_for(self.address) {
            let why = format!("this host is not http://{}", self.address);
            return Some(http::plain("403 Forbidden", &why));
        }
        if request.path != "/metrics" {
            return Some(http::plain("404 Not Found", "metrics are at /metrics"));
        }
        let body = if request.body { self.text() } else { "" };
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Some(http::response("200 OK", kind, "", body))
    }

    fn refuse(&mut self, why: Refusal) -> Vec<u8> {
        http::refusal(why)
    }
}

/// Name, description and value of a metric.
type ExposedFigure = (&'static str, &'static str, f64);

/// Metrics that only grow.
fn sums(run: &SteeringSummary) -> [ExposedFigure; 5] {
    [
        (
            "decisions",
            "Decisions since the start",
            run.decisions as f64,
        ),
        (
            "confined",
            "Threads whose affinity was changed, summed over decisions",
            run.changed as f64,
        ),
        (
            "refused",
            "Threads whose affinity could not be changed",
            run.refused as f64,
        ),
        (
            "stolen",
            "Threads moved by work stealing",
            run.stolen.unwrap_or(0) as f64,
        ),
        (
            "migrations",
            "Observed migrations between CPUs",
            run.migrations as f64,
        ),
    ]
}

/// Current values.
fn levels(
    run: &SteeringSummary,
    paused: bool,
    dropped: bool,
    stands_back: bool,
) -> [ExposedFigure; 5] {
    [
        (
            "effect_p99_seconds",
            "99th percentile of the time from a decision to its observed effect",
            run.effect.map_or(0.0, |effect| effect.p99_ms * 1e-3),
        ),
        (
            "threads",
            "Currently steered threads",
            run.programs.iter().map(|p| p.living as f64).sum(),
        ),
        (
            "paused",
            "Decisions are paused",
            f64::from(u8::from(paused)),
        ),
        (
            "stands_back",
            "Threads are released because another scheduler has them",
            f64::from(u8::from(stands_back)),
        ),
        (
            "policy_dropped",
            "The policy was dropped",
            f64::from(u8::from(dropped)),
        ),
    ]
}

fn exposition(control: &RunControl) -> String {
    // The steering thread only waits for this copy.
    let (run, paused, dropped, stands_back, policy) = {
        let shared = control.lock();
        let dropped = shared.dropped.is_some();
        let policy = shared.policy.clone();
        let stands_back = shared.stands_back.is_some();
        (
            shared.summary.clone(),
            shared.paused,
            dropped,
            stands_back,
            policy,
        )
    };
    let mut registry = Registry::with_prefix("countersteer");
    for (name, help, value) in sums(&run) {
        let sum = GrowingSum::default();
        sum.inc_by(value);
        registry.register(name, help, sum);
    }
    for (name, help, value) in levels(&run, paused, dropped, stands_back) {
        let level = ExposedLevel::default();
        level.set(value);
        registry.register(name, help, level);
    }
    let cpu = Family::<Labels, GrowingSum>::default();
    let info = Family::<Labels, ExposedLevel>::default();
    for program in run.programs.iter().chain(&run.short_lived) {
        for (core_type, seconds) in run.core_types.iter().zip(&program.cpu_s) {
            let labels = [("program", &program.name), ("core_type", core_type)];
            cpu.get_or_create(&labels.map(|(k, v)| (k.to_owned(), v.clone())).to_vec())
                .inc_by(*seconds);
        }
    }
    info.get_or_create(&vec![("policy".to_owned(), policy)])
        .set(1.0);
    registry.register_with_unit(
        "cpu_time",
        "CPU time by program and core type",
        Unit::Seconds,
        cpu,
    );
    registry.register("policy", "Active policy", info);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_with_their_programs_and_only_on_loopback() {
        let control = RunControl::default();
        control.lock().summary = crate::steering::summary::SteeringSummary {
            decisions: 7,
            core_types: vec!["big".into()],
            programs: vec![crate::steering::summary::ProgramTally {
                name: "p\"q".into(),
                cpu_s: vec![1.5],
                living: 2,
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = exposition(&control);
        assert!(text.contains("countersteer_decisions_total 7.0"), "{text}");
        assert!(
            text.contains("# TYPE countersteer_decisions counter")
                && text.contains("# TYPE countersteer_threads gauge"),
            "{text}"
        );
        let row = r#"countersteer_cpu_time_seconds_total{program="p\"q",core_type="big"} 1.5"#;
        assert!(text.contains(row) && text.ends_with("# EOF\n"), "{text}");
        assert!(door(SocketAddr::from(([0, 0, 0, 0], 0)), &control).is_err());
    }
}
