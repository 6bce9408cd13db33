//! The planner on machines of many kinds: what holds on all of them, and four plans word by word.

mod golden;
mod machines;
mod properties;
mod situations;
