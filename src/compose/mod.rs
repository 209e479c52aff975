//! The pod as data in, `compose.yaml` out, and the checks of both legs of the forward.

mod legs;
mod model;
mod render;
mod secret;

pub use legs::{LegError, check_legs};
pub use model::{ComposePod, HostPorts, Relabel, guest_port};
pub use render::{ComposeError, POD_LABEL, PROJECT_LABEL, SERVICE, render};
pub use secret::Secret;
