//! The Windows build under Wine: `scripts/test wine`. What Wine cannot show stands in docs/windows.md.

mod agent;
mod cmd;
mod exe;
mod exec;
mod install;
mod install_bat;
mod jobs;
mod powershell;
mod streams;
mod supervise;
mod terminals;
mod trees;
