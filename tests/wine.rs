//! The Windows build under Wine: `scripts/test wine`. What Wine cannot show stands in docs/windows.md.

mod agent;
mod cmd;
mod exe;
mod install;
mod install_bat;
mod powershell;
