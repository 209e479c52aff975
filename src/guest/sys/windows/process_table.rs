//! What tells a process from a later one of the same number.

/// When the process started, in ticks of the system's own; `None` where there is none.
pub(in crate::guest) fn start_time(_pid: u32) -> Option<u64> {
    todo!()
}
