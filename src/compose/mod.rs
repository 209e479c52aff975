//! The pod as data in; `compose.yaml`, Kubernetes objects or a quadlet out; and the checks of both legs of the forward.

mod emit;
mod file;
mod kubernetes;
mod legs;
mod merged;
mod model;
mod quadlet;
mod render;
mod secret;

pub use emit::EmitError;
pub use kubernetes::{kubernetes_name, render_kubernetes};
pub use legs::{LegError, check_legs};
pub use merged::{MergedLegs, Origin, Unreadable, merged_legs, names_agent_port};
pub use model::{ComposePod, HostPorts, Relabel, guest_port};
pub use quadlet::{quadlet_file_name, render_quadlet};
pub use render::{ComposeError, POD_LABEL, PROJECT_LABEL, SERVICE, render};
pub use secret::Secret;
