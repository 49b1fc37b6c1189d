//! Trained models that are not shipped: files in `countersteer/models/CORE-TYPE/` below the XDG data directories. The user's own
//! directory (`~/.local/share`) comes first, then the system's. `steer model train` writes models there.
//!
//! Input: a machine. Output: the machine with its models. The machine's text then contains them, so records, replays and
//! experiments on other hosts have the same models.

use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_cache::signature::store::{data_folders, own_data};
use countersteer_model::machine::{Machine, is_for};
use countersteer_model::models::{Judged, ModelFile, Target, shipped};
use countersteer_model::suggestion::suggestion;
use countersteer_model::topology::Topology;
use serde::Serialize;

use crate::error::{FaultKind, failure};
use crate::library::cannot_read;

const FOLDER: &str = "countersteer/models";

/// Trained model with the path of its file.
pub struct TrainedModelFile {
    pub path: PathBuf,
    pub file: ModelFile,
}

/// Returns the folder of the user's own models.
///
/// # Errors
/// Fails if there is no home directory.
pub fn own_folder() -> anyhow::Result<PathBuf> {
    let data = own_data().ok_or_else(|| {
        let why = "neither XDG_DATA_HOME nor HOME is set: name a folder for models with -o";
        failure(FaultKind::Usage, why)
    })?;
    Ok(data.join(FOLDER))
}

/// Adds to a machine the trained models for its core types, before those in its own file. Returns the paths of the added models.
///
/// # Errors
/// Fails if a file cannot be read, or is no model; the error contains the line.
pub fn add(machine: &mut Machine) -> anyhow::Result<Vec<PathBuf>> {
    let types = Topology::new(machine).core_types;
    let mut found = Vec::new();
    // Later models take precedence over earlier ones, so the folder with the highest priority is read last.
    for folder in data_folders().iter().rev() {
        for core_type in &types {
            found.extend(of_core_type(&folder.join(FOLDER), &core_type.name)?);
        }
    }
    found.retain(|found| is_for(&found.file, &types));
    let (paths, files): (Vec<_>, Vec<_>) = found.into_iter().map(|f| (f.path, f.file)).unzip();
    machine.model.splice(0..0, files);
    Ok(paths)
}

/// Returns all models in the data directories.
///
/// # Errors
/// Fails with the errors of [`add`].
pub fn all() -> anyhow::Result<Vec<TrainedModelFile>> {
    let mut all = Vec::new();
    for folder in data_folders() {
        let folder = folder.join(FOLDER);
        for core_type in entries(&folder)? {
            if let Some(name) = core_type.file_name().and_then(|name| name.to_str()) {
                all.extend(of_core_type(&folder, name)?);
            }
        }
    }
    Ok(all)
}

fn of_core_type(folder: &Path, core_type: &str) -> anyhow::Result<Vec<TrainedModelFile>> {
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|e| e == "toml");
    let files = entries(&folder.join(core_type))?.into_iter();
    let read = |path: PathBuf| {
        let file = read(&path)?;
        if file.core_type != core_type {
            let of = &file.core_type;
            let why = format!(
                "{}: this is a model of {of}: move it to {}",
                path.display(),
                folder.join(of).display()
            );
            return Err(failure(FaultKind::BadInput, why));
        }
        Ok(TrainedModelFile { path, file })
    };
    files.filter(is_toml).map(read).collect()
}

/// Returns the sorted paths in a folder; empty if the folder does not exist.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let cannot = || cannot_read(folder);
    let listed = std::fs::read_dir(folder).with_context(cannot)?;
    let mut paths: Vec<PathBuf> = listed
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(cannot)?;
    paths.sort();
    Ok(paths)
}

/// Reads a model from a file.
///
/// # Errors
/// Fails if the file cannot be read, or is no model; the error contains the line.
pub fn read(path: &Path) -> anyhow::Result<ModelFile> {
    let text = crate::library::read(path)?;
    Ok(ModelFile::parse(&text.path, &text.text)?)
}

/// Entry of the list of models.
#[derive(Clone, Debug, Serialize)]
pub struct ListedModel {
    /// File of one's own model; path below `models/` of a shipped one.
    pub path: String,
    pub target: Target,
    pub machine: String,
    pub core_type: String,
    pub judged: Judged,
}

/// Lists the user's own models, then the shipped ones, each sorted by path.
///
/// # Errors
/// Fails with the errors of [`add`].
pub fn known() -> anyhow::Result<Vec<ListedModel>> {
    let own = all()?.into_iter();
    let own = own.map(|found| (found.path.display().to_string(), found.file));
    let row = |(path, file): (String, ModelFile)| ListedModel {
        path,
        target: file.target,
        machine: file.machine,
        core_type: file.core_type,
        judged: file.judged,
    };
    Ok(own.chain(shipped()).map(row).collect())
}

/// Returns a shipped model by its path in the list, or the model of a file.
///
/// # Errors
/// There is no such model, or the file is none.
pub fn by_name(name: &str) -> anyhow::Result<ModelFile> {
    let known = shipped();
    if let Some((_, file)) = known.iter().find(|(path, _)| path == name) {
        return Ok(file.clone());
    }
    let path = countersteer_files::name::path(name.as_ref()).into_owned();
    if path.exists() {
        return read(&path);
    }
    let near = suggestion(name, known.iter().map(|(path, _)| path.as_str()));
    let why = format!("there is no model `{name}`{near}; `steer model list` prints all models");
    Err(failure(FaultKind::Usage, why))
}
