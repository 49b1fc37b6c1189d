//! Countersteer: host.
