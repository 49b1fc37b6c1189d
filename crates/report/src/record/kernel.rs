//! Names of CPUs for readers: the kernel's numbers.
//!
//! Input: CPUs by the topology's numbers, which a record's tables hold. Output: texts. Both numbers are equal unless CPUs were
//! offline.

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::units::CpuId;

use super::Record;
use crate::error::ReportError;

/// Kernel's numbers of a record's CPUs.
#[derive(Default)]
pub(crate) struct KernelCpus(CpuNumbers);

impl KernelCpus {
    /// Returns the kernel's number of a CPU. A CPU that the machine does not have keeps its number.
    pub(crate) fn cpu(&self, own: u32) -> u32 {
        self.0.os(CpuId(own)).map_or(own, |os| os.0)
    }

    /// Returns the list of some CPUs.
    pub(crate) fn list(&self, own: &CpuSet) -> String {
        let numbers = own.iter().map(|cpu| CpuId(self.cpu(cpu.0)));
        numbers.collect::<CpuSet>().to_string()
    }

    /// Returns the name of a core group, which holds a number if the group is a single CPU.
    pub(crate) fn group(&self, name: &str) -> String {
        let number = name.strip_prefix("cpu").and_then(|n| n.parse().ok());
        number.map_or_else(|| name.to_owned(), |own| format!("cpu{}", self.cpu(own)))
    }

    /// Returns the name of a decision's target: a core group, or a list of CPUs.
    pub(crate) fn target(&self, name: &str, own: &CpuSet) -> String {
        if name == own.to_string() {
            self.list(own)
        } else {
            self.group(name)
        }
    }
}

impl Record {
    /// Returns the kernel's numbers of the CPUs of the run's machine. CPUs of a machine that cannot be parsed keep their numbers.
    pub(crate) fn kernel_cpus(&self) -> KernelCpus {
        let numbers = self.machine().map(|machine| machine.os_cpu_numbers());
        KernelCpus(CpuNumbers::new(numbers.unwrap_or_default()))
    }

    /// Returns the machine of the run.
    pub(super) fn machine(&self) -> Result<Machine, ReportError> {
        let machine = &self.manifest.machine;
        Ok(Machine::parse(&machine.name, &machine.text)?)
    }
}
