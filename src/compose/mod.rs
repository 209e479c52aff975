//! The pod as data in, `compose.yaml` out, and the checks of both legs of the forward.

mod legs;
mod merged;
mod model;
mod render;
mod secret;

pub use legs::{LegError, check_legs};
pub use merged::{MergedLegs, Origin, Unreadable, merged_legs, names_agent_port};
pub use model::{ComposePod, HostPorts, Relabel, guest_port};
pub use render::{ComposeError, POD_LABEL, PROJECT_LABEL, render};
pub use secret::Secret;
