//! Countersteer: report.
