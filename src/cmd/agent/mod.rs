//! `podlink agent …`: what runs in the guest.

use super::Outcome;

/// Run in the guest: the agent
#[derive(Debug, clap::Args)]
pub struct AgentArgs {}

pub fn run(_args: AgentArgs) -> Outcome {
    Ok(super::Exit::SUCCESS)
}
