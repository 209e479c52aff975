//! The Windows build under Wine: `scripts/test wine`. What Wine cannot show stands in docs/windows.md.

mod agent;
mod exe;
mod exec;
mod install_bat;
mod jobs;
mod streams;
mod terminals;
mod trees;
