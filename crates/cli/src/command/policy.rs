//! `steer policy`: lists and shows policies, and prints their manual.

use std::fmt::Write as _;

use countersteer_model::policy::{Needs, PolicyDef};
use countersteer_policies::reach::{assumptions, simulator_only};
use countersteer_report::table::prose;
use serde::Serialize;

use super::{print, print_json};

/// Subcommands of `steer policy`.
#[derive(Debug, clap::Subcommand)]
pub enum PolicyArgs {
    /// List the policies
    List {
        /// Print JSON: an array of objects with `name`
        #[arg(long)]
        json: bool,
    },
    /// Show a policy: its purpose, parameters and requirements
    Show {
        /// Name of the policy
        policy: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print all policies as a Markdown document
    Manual,
}

#[derive(Serialize)]
struct PolicyRow {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    /// Text on the policy's idea, decisions and weaknesses; `None` for policies of other packages.
    head: Option<String>,
    /// True if the policy needs information that only a simulator has.
    simulator_only: bool,
    /// Sentences on the policy's assumptions about the machine.
    assumes: Vec<&'static str>,
    params: Vec<Param>,
    needs: Option<NeedsRow>,
}

#[derive(Serialize)]
struct Param {
    key: &'static str,
    default: &'static str,
    prose: &'static str,
}

/// Requirements of a policy with default parameters: metrics, events, phases, period and groups of cores.
#[derive(Serialize)]
struct NeedsRow {
    metrics: Vec<&'static str>,
    events: bool,
    phases: bool,
    period_ms: Option<f64>,
    groups: Option<countersteer_model::topology::GroupBy>,
}

impl From<&Needs> for NeedsRow {
    fn from(needs: &Needs) -> Self {
        Self {
            metrics: needs.metrics.clone(),
            events: needs.events,
            phases: needs.phases,
            period_ms: needs.period.map(|p| p.as_secs_f64() * 1e3),
            groups: needs.groups,
        }
    }
}

impl From<&PolicyDef> for PolicyRow {
    fn from(def: &PolicyDef) -> Self {
        let params = def.params.iter().map(|p| Param {
            key: p.key,
            default: p.default,
            prose: p.prose,
        });
        Self {
            name: def.name,
            summary: def.summary,
            source: def.source,
            head: countersteer_policies::head(def.name),
            simulator_only: simulator_only(def.name),
            assumes: assumptions(def.name),
            params: params.collect(),
            needs: needs(def.name),
        }
    }
}

/// Name of a machine for which every policy can be created.
const MACHINE: &str = "opteron-8356-12-4";

/// Returns the requirements of a policy with default parameters; `static` gets a mapping, since it has no default. Returns
/// `None` if the policy rejects the machine.
fn needs(name: &str) -> Option<NeedsRow> {
    let machine = countersteer_lab::experiment::machine(MACHINE).ok()?;
    let make = |spec: &str| countersteer_policies::parse(spec, &machine.topology);
    let policy = make(name).or_else(|_| make(&format!("{name}:*=0"))).ok()?;
    Some(NeedsRow::from(policy.needs()))
}

impl NeedsRow {
    fn words(&self) -> String {
        let mut words = Vec::new();
        if !self.metrics.is_empty() {
            let names: Vec<String> = self.metrics.iter().map(|m| format!("`{m}`")).collect();
            words.push(format!("metrics {}", names.join(", ")));
        }
        if self.events {
            words.push("decisions at thread events".into());
        }
        if self.phases {
            words.push("changes of phase".into());
        }
        if let Some(period_ms) = self.period_ms {
            words.push(format!("a decision every {period_ms} ms"));
        }
        if let Some(by) = self.groups {
            words.push(format!("one decision per core group (`{by:?}`)"));
        }
        if words.is_empty() {
            return "only the list of threads".into();
        }
        words.join("; ")
    }
}

/// Runs `steer policy`.
pub fn run(args: PolicyArgs) -> anyhow::Result<()> {
    match args {
        PolicyArgs::List { json: true } => print_json(
            &countersteer_policies::all()
                .into_iter()
                .map(PolicyRow::from)
                .collect::<Vec<_>>(),
        ),
        PolicyArgs::List { json: false } => {
            let rows = countersteer_policies::all()
                .into_iter()
                .map(|p| vec![p.name.into(), format!("{} ({})", p.summary, p.source)]);
            print(&countersteer_report::table::plain(
                &["policy", "what (source)"],
                rows,
            ))
        }
        PolicyArgs::Show { policy: name, json } => {
            let (def, _) = countersteer_policies::params(&name)?;
            if json {
                print_json(&PolicyRow::from(def))
            } else {
                print(&describe(&PolicyRow::from(def)))
            }
        }
        PolicyArgs::Manual => print(&manual()),
    }
}

const SIMULATOR_ONLY: &str = "It reads data that only a simulator has: it shows the value of that data, and no machine can run it.";

fn describe(row: &PolicyRow) -> String {
    let rows = row
        .params
        .iter()
        .map(|p| vec![p.key.to_owned(), p.default.to_owned(), p.prose.to_owned()]);
    let params = if row.params.is_empty() {
        "It has no parameters.\n".into()
    } else {
        countersteer_report::table::plain(&["parameter", "default", "what"], rows)
    };
    let mut text = prose(&format!("{}: {}\n", row.name, row.summary));
    text += &prose(&format!("source: {}\n", row.source));
    if row.simulator_only {
        text += &prose(SIMULATOR_ONLY);
        text.push('\n');
    }
    if let Some(head) = &row.head {
        let _ = writeln!(text, "\n{}", prose(head));
    }
    let _ = write!(text, "\n{params}");
    if let Some(needs) = &row.needs {
        text += &prose(&format!("\nneeds: {}\n", needs.words()));
    }
    if !row.assumes.is_empty() {
        text += &prose(&format!("assumes: {}\n", row.assumes.join("; ")));
    }
    text
}

const MANUAL: &str = "# Policies

Made by `make manual` (`steer policy manual`); do not edit. Each section is the head of the policy's file. How to write one of your
own: [writing-policies.md](writing-policies.md). How they compare: [benchmarks.md](benchmarks.md),
[reproduction.md](reproduction.md).

Every policy also takes `foreground=PROGRAM`, the program to which the others give way
([steering.md](steering.md#foreground-first)).

| policy | what | source |
|---|---|---|
";

/// Returns the manual of all policies as Markdown.
fn manual() -> String {
    let rows: Vec<PolicyRow> = countersteer_policies::POLICIES
        .iter()
        .map(PolicyRow::from)
        .collect();
    let mut text = MANUAL.to_owned();
    for row in &rows {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            row.name, row.summary, row.source
        );
    }
    for row in &rows {
        section(&mut text, row);
    }
    text
}

fn section(text: &mut String, row: &PolicyRow) {
    let _ = writeln!(text, "\n## `{}`", row.name);
    if row.simulator_only {
        let _ = writeln!(text, "\n**Simulator only.** {SIMULATOR_ONLY}");
    }
    if let Some(head) = &row.head {
        let _ = writeln!(text, "\n{head}");
    }
    if !row.params.is_empty() {
        text.push_str("\n| parameter | default | what |\n|---|---|---|\n");
    }
    for param in &row.params {
        let default = if param.default.is_empty() {
            String::new()
        } else {
            format!("`{}`", param.default)
        };
        let prose = param.prose.replace('|', "\\|");
        let _ = writeln!(text, "| `{}` | {default} | {prose} |", param.key);
    }
    if let Some(needs) = &row.needs {
        let _ = writeln!(text, "\nNeeds: {}.", needs.words());
    }
    if !row.assumes.is_empty() {
        let _ = writeln!(text, "\nAssumes: {}.", row.assumes.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");
        let made = manual();
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(
            made == kept,
            "docs/policies.md is not what `make manual` makes of the policies' heads"
        );
    }

    #[test]
    fn every_policy_says_what_it_does_and_when_it_loses() {
        for def in countersteer_policies::POLICIES {
            let row = PolicyRow::from(def);
            let text = describe(&row);
            assert!(row.needs.is_some(), "{}", def.name);
            assert!(text.contains("Loses"), "{}", def.name);
            for param in def.params {
                assert!(text.contains(param.key), "{}: {}", def.name, param.key);
            }
        }
    }
}
