//! Countersteer: sim.
