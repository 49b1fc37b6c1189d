//! Names of core types that share a microarchitecture.
//!
//! Input: classes with the microarchitecture's name, fastest first. Output: the classes with unique names that express their
//! differences.

use super::classify::CoreClass;
use super::platform::{Platform, Vendor};
use super::uarch;

/// Gives each class a unique name.
pub(super) fn assign(platform: &Platform, classes: &mut [CoreClass]) {
    let mut names: Vec<String> = Vec::new();
    for class in classes.iter() {
        let rivals: Vec<&CoreClass> = classes
            .iter()
            .filter(|c| c.uarch.name == class.uarch.name)
            .collect();
        let plain = distinct(platform, class, &rivals);
        let mut name = plain.clone();
        for nth in 2.. {
            if !names.contains(&name) {
                break;
            }
            name = format!("{plain}-{nth}");
        }
        names.push(name);
    }
    for (class, name) in classes.iter_mut().zip(names) {
        // Compact cores have a separate row in the table, but no model number.
        let row = uarch::named(&name);
        if row.name == name {
            class.uarch = row;
        }
        class.name = name;
    }
}

/// Value that may distinguish classes.
type ClassFigure = fn(&CoreClass) -> u64;

fn distinct(platform: &Platform, class: &CoreClass, rivals: &[&CoreClass]) -> String {
    let name = class.uarch.name.as_str();
    let stacked = platform.title.contains("X3D");
    let most = |figure: ClassFigure| rivals.iter().map(|c| figure(c)).max().unwrap_or(0);
    let [llc, levels, khz]: [ClassFigure; 3] = [
        |c| u64::from(c.llc_kib),
        |c| u64::from(c.levels),
        |c| c.khz.unwrap_or(0),
    ];
    if rivals.len() == 1 {
        name.to_owned()
    } else if stacked && llc(class) == most(llc) {
        format!("{name}-x3d")
    } else if levels(class) < most(levels) {
        format!("{name}-lp")
    } else if stacked || khz(class) == most(khz) {
        name.to_owned()
    } else if matches!(platform.vendor, Vendor::Amd { .. }) {
        format!("{name}c")
    } else if let Some(khz) = class.khz {
        format!("{name}-{}mhz", khz / 1000)
    } else {
        name.to_owned()
    }
}
