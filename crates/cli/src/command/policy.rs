//! `steer policy list|show`.

use countersteer_core::policy::PolicyDef;
use serde::Serialize;

use super::{print, print_json};
use crate::error::{Kind, told};

/// Policies.
#[derive(Debug, clap::Subcommand)]
pub enum Args {
    /// List the policies
    List {
        /// As JSON: an array of objects with `name`
        #[arg(long)]
        json: bool,
    },
    /// Show a policy and its parameters
    Show {
        /// Name
        policy: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    params: Vec<Param>,
}

#[derive(Serialize)]
struct Param {
    key: &'static str,
    default: &'static str,
    prose: &'static str,
}

impl From<&PolicyDef> for Row {
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
            params: params.collect(),
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args {
        Args::List { json: true } => print_json(
            &countersteer_policies::all()
                .into_iter()
                .map(Row::from)
                .collect::<Vec<_>>(),
        ),
        Args::List { json: false } => {
            let rows = countersteer_policies::all()
                .into_iter()
                .map(|p| vec![p.name.into(), p.summary.into(), p.source.into()]);
            print(&countersteer_report::table::plain(
                &["policy", "what", "source"],
                rows,
            ))
        }
        Args::Show { policy: name, json } => {
            let unknown = || {
                format!(
                    "there is no policy `{name}`; there are {}",
                    countersteer_policies::names().join(", ")
                )
            };
            let def = countersteer_policies::by_name(&name)
                .ok_or_else(|| told(Kind::Usage, unknown()))?;
            if json {
                print_json(&Row::from(def))
            } else {
                print(&describe(def))
            }
        }
    }
}

fn describe(def: &PolicyDef) -> String {
    let rows = def
        .params
        .iter()
        .map(|p| vec![p.key.to_owned(), p.default.to_owned(), p.prose.to_owned()]);
    let params = countersteer_report::table::plain(&["parameter", "default", "what"], rows);
    let params = if def.params.is_empty() {
        "It has no parameters.".into()
    } else {
        params
    };
    format!(
        "{}: {}\nsource: {}\n\n{params}",
        def.name, def.summary, def.source
    )
}
