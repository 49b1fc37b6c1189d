//! Figures of a running job for Prometheus, on a loopback address.
//!
//! Input: what the control socket sees. Output: OpenMetrics text at `/metrics`.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use anyhow::Context;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::governed::Control;

type Labelled = Family<Vec<(String, String)>, Gauge<f64, AtomicU64>>;

/// Answers on `address` for as long as this process lives.
pub fn serve(address: SocketAddr, control: &Control) -> anyhow::Result<()> {
    anyhow::ensure!(
        address.ip().is_loopback(),
        "{address} is no loopback address; metrics are for this host only"
    );
    let server = tiny_http::Server::http(address).map_err(|e| anyhow::anyhow!("{e}"));
    let server = server.with_context(|| format!("cannot listen on {address}"))?;
    let control = control.clone();
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            let (text, code) = match request.url() {
                "/metrics" => (exposition(&control), 200),
                _ => ("metrics are at /metrics\n".into(), 404),
            };
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let header = tiny_http::Header::from_bytes("Content-Type", kind);
            let response = tiny_http::Response::from_string(text).with_status_code(code);
            // A client that goes away concerns nobody else.
            let _ = match header {
                Ok(header) => request.respond(response.with_header(header)),
                Err(()) => request.respond(response),
            };
        }
    });
    Ok(())
}

fn exposition(control: &Control) -> String {
    let shared = control.lock();
    let run = &shared.summary;
    let mut registry = Registry::with_prefix("countersteer");
    let mut plain = |name: &str, help: &str, value: f64| {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    plain(
        "decisions",
        "Decisions since the start",
        run.decisions as f64,
    );
    plain(
        "confined",
        "Threads that were confined anew, summed over decisions",
        run.changed as f64,
    );
    plain(
        "refused",
        "Threads that could not be confined",
        run.refused as f64,
    );
    plain(
        "stolen",
        "Times a thread ran outside of its place since too many waited there",
        run.stolen.unwrap_or(0) as f64,
    );
    plain(
        "effect_p99_seconds",
        "Time in which 99 of 100 decisions held, from what was seen",
        run.effect.map_or(0.0, |effect| effect.p99_ms * 1e-3),
    );
    plain(
        "migrations",
        "Moves between CPUs that were seen",
        run.migrations as f64,
    );
    plain(
        "threads",
        "Threads that are steered now",
        run.programs.iter().map(|p| p.living as f64).sum(),
    );
    plain(
        "paused",
        "Nothing is decided",
        f64::from(u8::from(shared.paused)),
    );
    plain(
        "policy_dropped",
        "The policy was given up",
        f64::from(u8::from(shared.dropped.is_some())),
    );
    let cpu = Labelled::default();
    let info = Labelled::default();
    for program in run.programs.iter().chain(&run.short_lived) {
        for (core_type, seconds) in run.core_types.iter().zip(&program.cpu_s) {
            let labels = [("program", &program.name), ("core_type", core_type)];
            cpu.get_or_create(&labels.map(|(k, v)| (k.to_owned(), v.clone())).to_vec())
                .set(*seconds);
        }
    }
    info.get_or_create(&vec![("policy".to_owned(), shared.policy.clone())])
        .set(1.0);
    registry.register_with_unit(
        "cpu_time",
        "CPU time by program and core type",
        Unit::Seconds,
        cpu,
    );
    registry.register("policy", "The policy that decides", info);
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_with_their_programs_and_only_on_loopback() {
        let control = Control::default();
        control.lock().summary = crate::steering::tally::Summary {
            decisions: 7,
            core_types: vec!["big".into()],
            programs: vec![crate::steering::tally::ProgramTally {
                name: "p\"q".into(),
                cpu_s: vec![1.5],
                living: 2,
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = exposition(&control);
        assert!(text.contains("countersteer_decisions 7.0"), "{text}");
        let row = r#"countersteer_cpu_time_seconds{program="p\"q",core_type="big"} 1.5"#;
        assert!(text.contains(row) && text.ends_with("# EOF\n"), "{text}");
        assert!(serve(SocketAddr::from(([0, 0, 0, 0], 0)), &control).is_err());
    }
}
