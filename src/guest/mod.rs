//! The agent: admission, readiness gates, exec.
//!
//! [`claim`] binds the addresses, or finds that an agent runs there already; [`serve`] answers on what it has bound
//! until it is told to stop. The rest is what a front end needs around them: [`Config`], the log, the signals.

mod account;
mod admit;
mod attach;
mod attachments;
mod audit;
mod auth_delay;
mod bind;
pub mod calls;
mod clock;
mod config;
mod connection;
mod counters;
mod error;
mod events;
mod exec;
mod extract;
mod gates;
mod health;
mod hosts;
mod ids;
mod in_process;
mod info;
pub mod install;
mod log;
mod log_readers;
mod loggable;
mod logs;
mod looks;
mod metrics;
mod network;
mod pid_file;
mod process;
mod processes;
mod prometheus;
mod request_id;
mod restart;
mod router;
mod second;
mod server;
mod sessions;
mod signals;
mod snapshots;
mod stamp;
mod state;
mod streams;
mod supervisor;
mod sweep;
mod sys;
mod system;
mod transport;
mod whoami;

pub use auth_delay::AuthDelays;
pub use bind::{BindError, Claim, claim};
pub use config::{Config, Deadlines, Keep};
pub use error::GuestError;
pub use events::{LogTap, Settings as EventSettings};
pub use hosts::{HostName, MalformedHost, MalformedOrigin, Origin};
pub use in_process::InProcessAgent;
pub use log::{LogFormat, LogGuard, LogSettings, LogSource, Rotation, start_log};
pub use network::{MalformedNetwork, Network};
pub use pid_file::{PidFile, PidFileError};
pub use restart::{Keeper, RESTART_CODE};
pub use server::{Ended, serve};
pub use signals::{ServiceStart, Signal, Signals, StopRequests};
pub use supervisor::{Backoff, Lead, SupervisorSettings, hear_supervisor, supervise};
pub use sys::{
    as_service, ask_to_stop, default_install_log, default_runs_dir, default_token_file, drain_loop, hold_loop,
    interrupt_process, use_terminal,
};

use ids::random_hex;
