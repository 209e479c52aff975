//! The agent's installation: steps with a persisted state, each tested first and then set.
//!
//! ```text
//! firewall ▸ defender ▸ exe ▸ acl ▸ token ▸ autostart ▸ agent ▸ hook … ▸ install.done
//! ```
//!
//! [`install`] takes the steps, and the agent that it has started takes up those that are left when it was killed, by a
//! reboot say: whoever holds the lock works, and everybody reads the [`Record`]. A step that is required and fails ends
//! the installation; another run begins it again, and passes over the hooks that have run. A token that is missing
//! fails nothing: the agent waits for it and ends the installation when it has come.
//!
//! In the folder of the state:
//!
//! | file | |
//! | --- | --- |
//! | `install.json` | the [`Record`]: replaced whole, so that a kill leaves the one before or the one after |
//! | `install.done` | written last, removed first by another run: the gate that `/health` waits for |
//! | `install.lock` | locked by whoever works |
//! | `install.log` | what became of each step |
//! | `agent.json`, `agent.log` | the agent that runs: who it is; and its log |
//! | `hooks/NAME.log` | what a hook wrote |
//! | `runs/` | by which the processes of a hook are found again whose installer was killed |

mod adopt;
mod agent;
mod bundle;
mod engine;
mod hook_run;
mod hooks;
mod lock;
mod look;
mod places;
mod record;
mod restart;
mod status;
mod steps;
mod tend;
mod tool;
mod uninstall;

pub use bundle::default_bundle;
pub use engine::{InstallError, Outcome, Settings, install};
pub use look::Installation;
pub use places::Places;
pub use record::{Record, ServeSettings};
pub use restart::{Restarted, restart};
pub use status::{AgentSeen, Status, status};
pub use uninstall::{Undone, uninstall};

pub(super) use tend::{TendSettings, open_firewall, tend};
pub(super) use tool::Verdict;
pub(super) use {agent::announce, steps::Start, tool::Tool};

/// The flag that makes an agent survive a crash of its own where no service manager does, once there is one.
pub const SUPERVISE: Option<&str> = Some("--supervise");
