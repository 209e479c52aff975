//! What only tests set of an agent's patience.

use clap::Args;

/// Deadlines that only tests have a reason to change, in milliseconds.
#[derive(Debug, Args)]
pub(super) struct PatienceArgs {
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) header_deadline: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) body_stall: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) body_deadline: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) write_stall: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) attach_deadline: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) ping_interval: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) exec_queue_wait: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) orphan_grace: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) session_wait: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) stream_keep_alive: Option<u64>,
    #[arg(long, value_name = "N", hide = true)]
    pub(super) max_connections: Option<usize>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) auth_delay: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) auth_delay_cap: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) auth_window: Option<u64>,
    #[arg(long, value_name = "N", hide = true)]
    pub(super) auth_delayed: Option<usize>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) keep_logs: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) sweep_interval: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) events_keep_alive: Option<u64>,
    #[arg(long, value_name = "N", hide = true)]
    pub(super) events_kept: Option<usize>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) snapshot_deadline: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) restart_pause: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) restart_pause_cap: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    pub(super) restart_steady: Option<u64>,
}
